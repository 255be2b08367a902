//! What is only asked of driver and devices: on GPUs, too.

use gpucomm::Device;
use gpucomm::cuda::multicast::{Multicast, ObjectProperties, Refusal};
use gpucomm::cuda::vmm::HandleTypes;

#[test]
fn attributes_and_steps() {
    let devices = Device::all().unwrap();
    let why = Multicast::why_not(&devices).unwrap();
    if gpucomm::backend() == gpucomm::Backend::Emulator {
        assert!(devices.len() > 1 && why.is_none(), "{why:?}");
    }
    assert_eq!(Multicast::supported(&devices).unwrap(), why.is_none());
    println!("{} devices: {why:?}", devices.len());
    let sizes = [0, 1, 2 << 20, 511 << 20, 512 << 20, 3 << 30];
    for bytes in sizes {
        let both = HandleTypes::FD | HandleTypes::FABRIC;
        let steps = [HandleTypes::NONE, both]
            .map(|handles| ObjectProperties::new(devices.len(), bytes).with_handle_types(handles).granularity());
        println!("{bytes} bytes: {steps:?}");
        let [Ok(some), Ok(shared)] = steps else {
            assert!(matches!(why, Some(Refusal::DriverTooOld | Refusal::NotSupported)), "{why:?}");
            continue;
        };
        // Who has steps has multicast, if not for all of them at once.
        assert!(matches!(why, None | Some(Refusal::NotConnected)), "{why:?}");
        assert_eq!(some, shared);
        assert!(some.minimum.is_power_of_two() && some.recommended.is_multiple_of(some.minimum));
        let rounded = ObjectProperties::new(devices.len(), bytes).rounded().unwrap();
        assert!(rounded.bytes() >= bytes.max(1) && rounded.bytes().is_multiple_of(some.minimum));
    }
}
