//! Words of a shell's line.

/// `word` as every POSIX shell reads it back.
pub fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+./:=@%,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn words() {
        for (word, want) in
            [("--lr=0.1", "--lr=0.1"), ("", "''"), ("a b", "'a b'"), ("it's $1", r"'it'\''s $1'"), ("~", "'~'")]
        {
            assert_eq!(quote(word), want);
        }
    }
}
