//! Compares any trace with a recorded run and renders the result.

use crate::sample_profiles;
use ibscope::analysis::crosscheck::agrees;
use ibscope::crosscheck::cubex::CubeProfile;
use ibscope::crosscheck::{
    AppTrace, Crosscheck, CrosscheckError, CrosscheckOptions, SingleMessages, crosscheck, crosscheck_sums,
};
use ibscope::render;
use std::io;

/// Compares a trace of messages.
pub(crate) fn trace(trace: &AppTrace) {
    show(&crosscheck(
        trace,
        &sample_profiles::PLAIN,
        &SingleMessages::new(true).sorted(),
        None,
        &CrosscheckOptions::default(),
    ));
}

/// Compares a profile of sums.
pub(crate) fn cube_profile(sums: &CubeProfile) {
    show(&crosscheck_sums(sums, &sample_profiles::PLAIN, None, &CrosscheckOptions::default()));
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
    let page =
        render::html::Page { crosscheck: Some(checked), ..render::html::Page::of(&sample_profiles::PLAIN, "fuzz") };
    page.write(out).expect("written to nowhere");
}
