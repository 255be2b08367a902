//! What Rust calls is what C declares.

/// The functions of vendor/shim/gpucomm_pmix.h, as Rust would declare them.
fn of_c() -> Vec<String> {
    let text = include_str!("../../vendor/shim/gpucomm_pmix.h");
    let lines = text.lines().filter(|line| line.ends_with(");") && line.contains("gpucommPmix"));
    let argument = |argument: &str| {
        let at = argument.rfind([' ', '*']).expect("a type and a name") + 1;
        format!("{}: {}", &argument[at..], of_type(argument[..at].trim()))
    };
    let mut all: Vec<String> = lines
        .map(|line| {
            let at = line.find("gpucommPmix").expect("a name");
            let (name, arguments) = line[at..].trim_end_matches(");").split_once('(').expect("arguments");
            let arguments: Vec<String> = arguments.split(", ").filter(|one| *one != "void").map(argument).collect();
            format!("{name}({}) -> {}", arguments.join(", "), of_type(line[..at].trim()))
        })
        .collect();
    all.sort();
    all
}

fn of_type(c: &str) -> &str {
    match c {
        "int" => "c_int",
        "uint32_t" => "u32",
        "size_t" => "usize",
        "uint32_t *" => "*mut u32",
        "size_t *" => "*mut usize",
        "int *" => "*mut c_int",
        "char *" => "*mut c_char",
        "const char *" => "*const c_char",
        "void *" => "*mut c_void",
        "const void *" => "*const c_void",
        other => panic!("no type of Rust for {other:?}"),
    }
}

/// The functions of src/sys/pmix.rs.
fn of_rust() -> Vec<String> {
    let text: String = include_str!("../../src/sys/pmix.rs").split_whitespace().collect::<Vec<&str>>().join(" ");
    let all = text.split("pub fn ").skip(1).map(|rest| rest.split(';').next().expect("a declaration"));
    let mut all: Vec<String> = all.map(|one| one.replace("( ", "(").replace(", )", ")")).collect();
    all.sort();
    all
}

#[test]
fn both_declare_the_same() {
    assert_eq!(of_c(), of_rust());
    assert_eq!(of_c().len(), 10);
}
