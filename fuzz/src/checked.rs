//! A trace held against a recorded run, whatever it says.

use crate::base;
use ibscope::analysis::crosscheck::agrees;
use ibscope::crosscheck::cubex::CubeProfile;
use ibscope::crosscheck::{Crosscheck, CrosscheckError, Options, Singles, Trace, crosscheck, crosscheck_sums};
use ibscope::render;
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
    assert!(!render::crosscheck::table(checked).is_empty());
    let _ = agrees(checked);
    let wrote = [
        render::crosscheck::csv(checked, out),
        render::crosscheck::json(checked, out),
        render::crosscheck::differences_csv(checked, out),
        render::crosscheck::clocks_csv(checked, out),
        render::crosscheck::delays_csv(checked, out),
        render::crosscheck::calls_csv(checked, out),
        render::crosscheck::one_sided_csv(checked, out),
        render::crosscheck::unidentified_csv(checked, out),
    ];
    assert!(wrote.iter().all(Result::is_ok));
    let page = render::html::Page { crosscheck: Some(checked), ..render::html::Page::of(&base::PLAIN, "fuzz") };
    page.write(out).expect("written to nowhere");
}
