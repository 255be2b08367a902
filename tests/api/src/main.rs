//! Prints the public interface that is in a file of rustdoc's JSON, one item a line.

fn main() -> Result<(), public_api::Error> {
    let file = std::env::args_os().nth(1).expect("usage: gpucomm-api FILE");
    let api = public_api::Builder::from_rustdoc_json(file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    api.items().for_each(|item| println!("{item}"));
    Ok(())
}
