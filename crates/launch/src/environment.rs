//! The environment of a program or command: what users set, over what an image says.

use tare_control::exit::ExitCode;

use crate::failure::Explain;

/// What a user wrote that is not a variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--env {0:?} is not NAME=VALUE")]
pub(crate) struct NotAVariable(String);

impl Explain for NotAVariable {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

/// Sets the user's variables, `NAME=VALUE`.
pub(crate) fn set_all(
    environment: &mut Vec<String>,
    variables: &[String],
) -> Result<(), NotAVariable> {
    for variable in variables {
        let parts = variable.split_once('=');
        let parts = parts.filter(|(name, _)| !name.is_empty());
        let (name, value) = parts.ok_or_else(|| NotAVariable(variable.clone()))?;
        set(environment, name, value, true);
    }
    Ok(())
}

/// Sets a variable, also one that is there if it `replaces`.
pub(crate) fn set(environment: &mut Vec<String>, name: &str, value: &str, replaces: bool) {
    let same = |have: &String| have.split_once('=').is_some_and(|(have, _)| have == name);
    match environment.iter_mut().find(|have| same(have)) {
        Some(have) if replaces => *have = format!("{name}={value}"),
        Some(_) => {}
        None => environment.push(format!("{name}={value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_variables_take_the_place_of_an_images() {
        let mut environment = vec!["A=1".to_owned(), "AB=2".to_owned()];
        let own = ["A=x=y", "C="].map(str::to_owned);
        set_all(&mut environment, &own).unwrap();
        set(&mut environment, "AB", "3", false);
        assert_eq!(environment, ["A=x=y", "AB=2", "C="]);
        for wrong in ["A", "=1", ""] {
            let wrong = wrong.to_owned();
            let set = set_all(&mut environment, std::slice::from_ref(&wrong));
            assert_eq!(set, Err(NotAVariable(wrong)));
        }
    }
}
