//! Commands as text: the tables are written, and mismatches printed, as redis-cli lines.

/// One command: its name and arguments.
pub(crate) type Command = Vec<Vec<u8>>;

/// Splits a redis-cli line into words: bare words, `'literal'`, and `"escaped\r\n\x00"`. `*N` after a closing double
/// quote repeats the string N times (`"ab"*3`), so that tables can name large values.
pub(crate) fn parse(line: &str) -> Command {
    let bytes = line.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b' ' => at += 1,
            b'"' => words.push(double_quoted(bytes, &mut at)),
            b'\'' => {
                let end = at + 1 + bytes[at + 1..].iter().position(|&b| b == b'\'').expect("closing quote");
                words.push(bytes[at + 1..end].to_vec());
                at = end + 1;
            }
            _ => {
                let end = bytes[at..].iter().position(|&b| b == b' ').map_or(bytes.len(), |n| at + n);
                words.push(bytes[at..end].to_vec());
                at = end;
            }
        }
    }
    words
}

fn double_quoted(bytes: &[u8], at: &mut usize) -> Vec<u8> {
    let mut word = Vec::new();
    *at += 1;
    while bytes[*at] != b'"' {
        if bytes[*at] != b'\\' {
            word.push(bytes[*at]);
            *at += 1;
            continue;
        }
        let escape = bytes[*at + 1];
        *at += 2;
        word.push(match escape {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let hex = std::str::from_utf8(&bytes[*at..*at + 2]).expect("two hex digits");
                *at += 2;
                u8::from_str_radix(hex, 16).expect("two hex digits")
            }
            other => other,
        });
    }
    *at += 1;
    if bytes.get(*at) == Some(&b'*') {
        let digits: Vec<u8> = bytes[*at + 1..].iter().copied().take_while(u8::is_ascii_digit).collect();
        *at += 1 + digits.len();
        let times = String::from_utf8_lossy(&digits).parse().expect("a count after *");
        word = word.repeat(times);
    }
    word
}

/// The command as a line that [`parse`] and redis-cli read back; long words are cut, with their length.
pub(crate) fn print(command: &[Vec<u8>]) -> String {
    let word = |word: &Vec<u8>| {
        let plain = !word.is_empty()
            && word.iter().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'\\'));
        match (plain, word.len()) {
            (_, 121..) => format!("\"{}\"...({} bytes)", word[..40].escape_ascii(), word.len()),
            (true, _) => String::from_utf8_lossy(word).into_owned(),
            (false, _) => format!("\"{}\"", word.escape_ascii().to_string().replace("\\'", "'")),
        }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The command as a RESP array of bulk strings.
pub(crate) fn encode(command: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Several commands back to back.
pub(crate) fn encode_all(commands: &[Command]) -> Vec<u8> {
    commands.iter().flat_map(|command| encode(command)).collect()
}

/// The command's name in capitals.
pub(crate) fn name(command: &[Vec<u8>]) -> String {
    command.first().map(|word| String::from_utf8_lossy(word).to_uppercase()).unwrap_or_default()
}
