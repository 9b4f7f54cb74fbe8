//! A trace held against a recorded run, whatever it says.

use crate::base;
use ibscope::crosscheck::cubex::CubeProfile;
use ibscope::crosscheck::{Crosscheck, CrosscheckError, Options, Singles, Trace, crosscheck, crosscheck_sums};
use ibscope::report;
use std::io;

/// A trace of messages.
pub(crate) fn trace(trace: &Trace) {
    show(&crosscheck(trace, &base::PLAIN, &Singles::new(true).sorted(), None, &Options::default()));
}

/// A profile of sums.
pub(crate) fn sums(sums: &CubeProfile) {
    show(&crosscheck_sums(sums, &base::PLAIN, None, &Options::default()));
}

fn show(checked: &Result<Crosscheck, CrosscheckError>) {
    let checked = match checked {
        Ok(checked) => checked,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let out = &mut io::sink();
    assert!(!report::crosscheck::table(checked).is_empty());
    let _ = report::crosscheck::agrees(checked);
    let wrote = [
        report::crosscheck::csv(checked, out),
        report::crosscheck::json(checked, out),
        report::crosscheck::differences_csv(checked, out),
        report::crosscheck::clocks_csv(checked, out),
        report::crosscheck::delays_csv(checked, out),
        report::crosscheck::calls_csv(checked, out),
        report::crosscheck::one_sided_csv(checked, out),
        report::crosscheck::unidentified_csv(checked, out),
    ];
    assert!(wrote.iter().all(Result::is_ok));
    let page = report::html::Page { crosscheck: Some(checked), ..report::html::Page::of(&base::PLAIN, "fuzz") };
    page.write(out).expect("written to nowhere");
}
