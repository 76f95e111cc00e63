//! Doubles as text, the way Valkey's `d2string` writes them.

/// The longest text: sign, 17 digits, point, `e-308`.
pub(crate) const TEXT_LEN_MAX: usize = 32;

/// Writes the text of `value` into `space` and returns it.
pub(crate) fn double_text(value: f64, space: &mut [u8; TEXT_LEN_MAX]) -> &[u8] {
    let text = if value.is_nan() { "nan".to_owned() } else { format!("{value}") };
    let len = text.len().min(TEXT_LEN_MAX);
    space[..len].copy_from_slice(&text.as_bytes()[..len]);
    &space[..len]
}
