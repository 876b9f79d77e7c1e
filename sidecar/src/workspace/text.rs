//! Text or not, told from the bytes.

/// How far into a file is looked: what has no NUL so far and is UTF-8 is text.
const LOOKED_AT: usize = 8000;

/// Whether a file cannot be shown as lines: a NUL near its beginning, or not UTF-8.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(LOOKED_AT).any(|byte| *byte == 0) || std::str::from_utf8(bytes).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_utf_8_without_a_nul_near_its_beginning() {
        assert!(!is_binary(b""));
        assert!(!is_binary("größer\n".as_bytes()));
        assert!(is_binary(b"GIF\0"));
        assert!(is_binary(&[0x66, 0xff]));
    }
}
