//! A job that ends: sums a column of a file of its root and prints the result. Its status is the
//! machine's: 0, 2 for a wrong call, 3 for a file that is missing or wrong.

use std::env;
use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = env::args().nth(1) else {
        eprintln!("usage: job FILE");
        return ExitCode::from(2);
    };
    match sum(&path) {
        Ok((rows, total)) => {
            println!("{{\"rows\": {rows}, \"total\": {total}}}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::from(3)
        }
    }
}

/// Rows below the heading, and the sum of their second column.
fn sum(path: &str) -> Result<(usize, i64), Box<dyn std::error::Error>> {
    let text = fs::read_to_string(path)?;
    let mut total = 0_i64;
    let mut rows = 0;
    for (number, line) in text.lines().enumerate().skip(1) {
        let amount = line.split(',').nth(1).map(str::trim).map(str::parse::<i64>);
        let Some(Ok(amount)) = amount else {
            return Err(format!("line {} has no amount", number + 1).into());
        };
        total = total.checked_add(amount).ok_or("the sum is too large")?;
        rows += 1;
    }
    Ok((rows, total))
}
