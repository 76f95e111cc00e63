//! The client's side: commands as bytes, and replies as frames.

/// Appends a command as an array of bulk strings.
pub fn encode_command(out: &mut Vec<u8>, args: &[impl AsRef<[u8]>]) {
    let mut digits = itoa::Buffer::new();
    out.push(b'*');
    out.extend_from_slice(digits.format(args.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    for arg in args {
        let arg = arg.as_ref();
        out.reserve(arg.len() + 32);
        out.push(b'$');
        out.extend_from_slice(digits.format(arg.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}
