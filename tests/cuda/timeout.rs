//! The variable for timeouts is never guessed at.

use std::time::Duration;

use gpucomm::{Device, default_timeout};

use crate::child::{child, refuses_devices};

#[test]
fn a_timeout_that_is_none_is_an_error() {
    for value in ["abc", "0", "-1", "2 days", "1e17"] {
        let this = "timeout::a_timeout_that_is_none_is_an_error";
        refuses_devices(this, ("GPUCOMM_TIMEOUT", value), &["GPUCOMM_TIMEOUT", value, "500ms"]);
    }
}

#[test]
fn sensible_forms_are_taken() {
    for (value, ms) in [("2s", 2000), ("500ms", 500), ("2.5", 2500), ("2m", 120_000), ("", 300_000)] {
        let end = child("timeout::sensible_forms_are_taken", &[("GPUCOMM_TIMEOUT", value)], move || {
            // A machine without a GPU says so, and not that something is wrong with the variable.
            let _ = Device::count().map_err(|error| assert!(!error.to_string().contains("GPUCOMM_TIMEOUT"), "{error}"));
            println!("told: {:?}", default_timeout());
        });
        end.assert_success();
        let want = format!("told: {:?}", Duration::from_millis(ms));
        assert!(end.text.contains(&want), "{value:?}: {}", end.text);
    }
}
