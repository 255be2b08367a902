//! With the feature `bytemuck`.
#![allow(dead_code)]

mod element_aligned_too_much {
    //! Device memory begins at multiples of 256 bytes, not more.
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C, align(512))]
    struct Page([u8; 512]);

    gpucomm::element!(Page);
}

mod element_that_is_not_pod {
    //! The macro asks bytemuck, and makes nothing safe that is not.
    #[derive(Clone, Copy)]
    struct Flag(bool);

    gpucomm::element!(Flag);
}

mod element_without_bytes {
    //! Nothing cannot be sent.
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C)]
    struct Nothing;

    gpucomm::element!(Nothing);
}

mod struct_with_padding {
    //! Padding is no value that could be sent.
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C)]
    struct Padded {
        mass: f32,
        charge: i8,
    }

    gpucomm::element!(Padded);
}

fn main() {}
