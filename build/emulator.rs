//! Doing without the libraries, for who lacks them.

/// The variable that says no to the feature, which anybody in the graph of dependencies may have switched on.
pub const REFUSED: &str = "GPUCOMM_NO_EMULATOR";

/// What to do for the emulator, where [`REFUSED`] is set or not. The feature is named so that it can be given in the directory of
/// this package and of those that depend on it.
pub fn how(refused: bool) -> &'static str {
    match refused {
        true => "unset GPUCOMM_NO_EMULATOR and give --features gpucomm/emulator",
        false => "--features gpucomm/emulator",
    }
}
