//! Pages of the stored runs: each `report.html` is what its samples give now.

mod support;

use std::fs;
use std::path::Path;

use support::TestDir;

/// Longest page that is kept, bytes: the study of seven workloads draws 239 charts.
const LONGEST: usize = 600_000;

/// TARE_BLESS=1 rewrites the pages.
#[test]
fn kept_runs_have_the_page_that_their_samples_give() {
    let place = TestDir::new();
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs");
    let mut pages = 0;
    for run in fs::read_dir(runs).unwrap() {
        let run = run.unwrap().path();
        // Others are of scripts/peers.sh.
        if !run.join("summary.json").exists() {
            continue;
        }
        let copy = place.path().join(run.file_name().unwrap());
        fs::create_dir(&copy).unwrap();
        for file in ["raw.jsonl", "summary.json", "command.txt"] {
            fs::copy(run.join(file), copy.join(file)).unwrap();
        }
        let again = ["report", "--page", copy.to_str().unwrap()];
        place.run(&again).expect(0, "report.html");
        let page = fs::read_to_string(copy.join("report.html")).unwrap();
        assert!(page.len() < LONGEST, "{}: {}", run.display(), page.len());
        let kept = run.join("report.html");
        if std::env::var_os("TARE_BLESS").is_some() {
            fs::write(&kept, &page).unwrap();
        }
        assert!(
            fs::read_to_string(&kept).unwrap_or_default() == page,
            "{} is stale: TARE_BLESS=1 rewrites it",
            kept.display()
        );
        pages += 1;
    }
    assert!(pages > 10, "{pages} pages");
}
