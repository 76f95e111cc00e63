//! As much of HTTP/1.1 as it takes: the head of a request, and a response to it.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes that a request may have.
pub(super) const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Headers that a request may have.
const HEADERS_MAX: usize = 64;

/// A request that may be answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Only the head of the response is wanted.
    pub(super) head_only: bool,
    /// Without what may follow a question mark.
    pub(super) path: String,
    /// The Accept headers, joined.
    pub(super) accept: String,
    /// Another request may follow on the connection.
    pub(super) keep_alive: bool,
}

/// What the bytes received are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// Not a whole request yet.
    Partial,
    /// A request of so many bytes.
    Request(Request, usize),
    /// Nothing that is answered otherwise.
    Refused(Status),
}

/// What a response begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    ContentTooLarge,
    HeadersTooLarge,
    VersionNotSupported,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::HeadersTooLarge => "431 Request Header Fields Too Large",
            Self::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// Reads a request from what has been received.
pub(super) fn parse(input: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(input) {
        Ok(httparse::Status::Complete(len)) if len <= REQUEST_BYTES_MAX => len,
        Ok(httparse::Status::Partial) if input.len() < REQUEST_BYTES_MAX => return Parsed::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Parsed::Refused(Status::HeadersTooLarge),
        Err(httparse::Error::Version) => return Parsed::Refused(Status::VersionNotSupported),
        Err(_) => return Parsed::Refused(Status::BadRequest),
    };
    match read(&request) {
        Ok(request) => Parsed::Request(request, len),
        Err(status) => Parsed::Refused(status),
    }
}

fn read(request: &httparse::Request<'_, '_>) -> Result<Request, Status> {
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(Status::BadRequest);
    };
    let values = |name: &str| {
        let of = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        of.map(|header| String::from_utf8_lossy(header.value).trim().to_ascii_lowercase()).collect::<Vec<_>>()
    };
    // What has a body would be read wrongly from there on.
    if !values("transfer-encoding").is_empty() || values("content-length").iter().any(|length| length != "0")
    {
        return Err(Status::ContentTooLarge);
    }
    if version == 1 && values("host").len() != 1 {
        return Err(Status::BadRequest);
    }
    let head_only = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Err(Status::MethodNotAllowed),
    };
    // Through a proxy the whole address may stand there.
    let path = match target.strip_prefix("http://") {
        Some(address) => address.find('/').map_or("/", |slash| &address[slash..]),
        None => target,
    };
    if !path.starts_with('/') {
        return Err(Status::BadRequest);
    }
    let connection = values("connection").join(",");
    let says = |word: &str| connection.split(',').any(|said| said.trim() == word);
    Ok(Request {
        head_only,
        path: path.split('?').next().unwrap_or(path).to_owned(),
        accept: values("accept").join(","),
        keep_alive: if version == 1 { !says("close") } else { says("keep-alive") },
    })
}

/// A response, not yet as bytes.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: Status,
    pub(super) content_type: &'static str,
    pub(super) body: Cow<'static, str>,
}

impl Response {
    /// One that says in a sentence what is wrong.
    pub(super) fn refusal(status: Status) -> Self {
        let body = format!("{}. There are /, /metrics and /metrics.json, for GET and HEAD.\n", status.line());
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    /// As it goes over the wire. Pages may run the script and style that stand in them, and load nothing from elsewhere.
    pub(super) fn bytes(&self, head_only: bool, keep_alive: bool) -> Vec<u8> {
        const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
            connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let allow = if self.status == Status::MethodNotAllowed { "Allow: GET, HEAD\r\n" } else { "" };
        let mut bytes = format!(
            "HTTP/1.1 {}\r\nDate: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Vary: Accept\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: {POLICY}\r\n\
             Connection: {}\r\n\r\n",
            self.status.line(),
            date(now),
            self.content_type,
            self.body.len(),
            if keep_alive { "keep-alive" } else { "close" },
        )
        .into_bytes();
        if !head_only {
            bytes.extend_from_slice(self.body.as_bytes());
        }
        bytes
    }
}

/// Seconds of Unix time as HTTP writes them. Days are counted in years that begin in March, so that a leap day is the last of
/// its year, and in eras of 400 years (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn date(unix_s: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    /// From 1 March 0000 to 1 January 1970.
    const DAYS_BEFORE_1970: u64 = 719_468;
    let (days, seconds) = (unix_s / 86_400, unix_s % 86_400);
    let day = days + DAYS_BEFORE_1970;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    format!(
        "{}, {day_of_month:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        WEEKDAYS[(days % 7) as usize],
        MONTHS[month as usize],
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(input: &str) -> Request {
        match parse(input.as_bytes()) {
            Parsed::Request(request, len) => {
                assert_eq!(len, input.len());
                request
            }
            other => panic!("{input:?}: {other:?}"),
        }
    }

    #[test]
    fn requests_are_read() {
        let plain = request(
            "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\nACCEPT: */*;q=0.1\r\n\r\n",
        );
        assert_eq!((plain.path.as_str(), plain.accept.as_str()), ("/metrics", "text/plain,*/*;q=0.1"));
        assert!(plain.keep_alive && !plain.head_only);
        assert!(!request("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n").keep_alive);
        assert!(!request("HEAD / HTTP/1.0\r\n\r\n").keep_alive);
        assert!(request("HEAD / HTTP/1.0\r\nConnection: x, keep-alive\r\n\r\n").keep_alive);
        assert_eq!(request("GET http://h:9121/a HTTP/1.1\r\nHost: h\r\n\r\n").path, "/a");
        assert_eq!(request("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n").path, "/");
    }

    #[test]
    fn every_beginning_of_a_request_is_partial() {
        let input = b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";
        for len in 0..input.len() {
            assert_eq!(parse(&input[..len]), Parsed::Partial, "{len}");
        }
    }

    #[test]
    fn what_is_no_request_for_us_is_refused() {
        let long = format!("GET / HTTP/1.1\r\nHost: {}", "a".repeat(REQUEST_BYTES_MAX));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        for (input, status) in [
            ("\0\x01\x02\x03\r\n\r\n", Status::BadRequest),
            ("*1\r\n$4\r\nPING\r\n", Status::BadRequest),
            ("GET / HTTP/1.1\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Status::BadRequest),
            ("GET metrics HTTP/1.1\r\nHost: a\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Status::VersionNotSupported),
            ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", Status::MethodNotAllowed),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", Status::ContentTooLarge),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", Status::ContentTooLarge),
            (&long, Status::HeadersTooLarge),
            (&many, Status::HeadersTooLarge),
        ] {
            assert_eq!(parse(input.as_bytes()), Parsed::Refused(status), "{input:?}");
        }
    }

    #[test]
    fn dates_are_those_of_http() {
        for (unix_s, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(date(unix_s), text);
        }
    }

    #[test]
    fn a_response_to_head_has_the_length_and_not_the_body() {
        let response = Response::refusal(Status::MethodNotAllowed);
        let [whole, head] = [false, true].map(|head| String::from_utf8(response.bytes(head, false)).unwrap());
        assert!(head.ends_with("\r\n\r\n") && head.contains("\r\nAllow: GET, HEAD\r\n"), "{head}");
        assert!(whole.contains(&format!("Content-Length: {}\r\n", response.body.len())), "{whole}");
        assert!(whole.ends_with(&*response.body) && whole.contains("\r\nConnection: close\r\n"), "{whole}");
    }
}
