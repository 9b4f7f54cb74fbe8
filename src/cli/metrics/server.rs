//! A small HTTP/1.1 server for one page, which scrapers read.
//!
//! In: requests on a TCP socket. Out: the page, made for each request.
//!
//! Invariant: a client can send and leave unread anything, and holds one of [`CLIENTS`] threads and
//! [`HEAD_BYTES`] beside its page, for a limited time. The body of a request is not read: its
//! announced length has no effect.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Connections at the same time. A client beyond them gets status 503 at once.
const CLIENTS: usize = 16;
/// Longest head of a request: request line and header fields.
const HEAD_BYTES: usize = 8 << 10;
/// Most header fields of a request.
const HEADER_FIELDS: usize = 64;
/// Longest time until the head of a request has arrived.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Longest time until the client has taken the response. Prometheus waits as long for a page.
const RESPONSE_TIME: Duration = Duration::from_secs(10);
/// Longest time until the client closes the connection after the response.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Pause after a connection that cannot be accepted, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const BAD_REQUEST: &str = "400 Bad Request";
const REQUEST_TIMEOUT: &str = "408 Request Timeout";
const HEAD_TOO_LARGE: &str = "431 Request Header Fields Too Large";

/// A page and its media type.
pub(super) struct HttpPage {
    pub(super) media_type: &'static str,
    pub(super) text: String,
}

/// A server, which ends when it is dropped.
pub(super) struct PageServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl PageServer {
    /// Serves a page at `path` of this address. `page` makes it from the media types that the client
    /// accepts.
    pub(super) fn start(
        address: SocketAddr,
        path: &'static str,
        page: impl Fn(&str) -> HttpPage + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let server = Self { address: listener.local_addr()?, stop: Arc::default() };
        let stop = Arc::clone(&server.stop);
        let answer = move |stream: &mut TcpStream| answer(stream, path, &page);
        thread::Builder::new().name("metrics".to_owned()).spawn(move || accept(&listener, &stop, &Arc::new(answer)))?;
        Ok(server)
    }

    /// The address of the socket, with the port that the system chose for port 0.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread waits for a connection, so one of our own wakes it.
        let mut address = self.address;
        match address {
            SocketAddr::V4(own) if own.ip().is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(own) if own.ip().is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        let _ = TcpStream::connect_timeout(&address, CLOSE_TIME);
    }
}

/// Answers each connection in a thread of its own, until the server stops.
fn accept<A>(listener: &TcpListener, stop: &AtomicBool, answer: &Arc<A>)
where
    A: Fn(&mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
{
    // Each thread holds a clone until it ends, even by a panic.
    let clients = Arc::new(());
    let mut refused = VecDeque::new();
    for connection in listener.incoming() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Ok(mut stream) = connection else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if Arc::strong_count(&clients) > CLIENTS {
            refuse(stream, &mut refused);
            continue;
        }
        let (client, answer) = (Arc::clone(&clients), Arc::clone(answer));
        let work = move || {
            // A client that is gone does not matter.
            let _ = answer(&mut stream);
            drop(client);
        };
        // Without a thread, the connection is closed.
        let _ = thread::Builder::new().name("metrics client".to_owned()).spawn(work);
    }
}

/// Answers a client beyond [`CLIENTS`] without waiting for its request.
fn refuse(mut stream: TcpStream, refused: &mut VecDeque<TcpStream>) {
    let response = HttpResponse::error("503 Service Unavailable", format!("more than {CLIENTS} connections\n"));
    // The response fits into the empty buffer of the socket; the thread must not wait in any case.
    if stream.set_nonblocking(true).is_err() || stream.write_all(&response.bytes(true)).is_err() {
        return;
    }
    // The connection stays open for a while: if a request arrives after it is closed, the kernel
    // resets the connection, and the client may not see the response.
    let _ = stream.shutdown(Shutdown::Write);
    if refused.len() == CLIENTS {
        refused.pop_front();
    }
    refused.push_back(stream);
}

/// Reads a request, sends the response, and closes the connection.
fn answer(stream: &mut TcpStream, path: &str, page: &impl Fn(&str) -> HttpPage) -> io::Result<()> {
    let (response, has_content) = match read_request(stream) {
        Ok(request) => (request.response(path, page), request.method != "HEAD"),
        Err(NoRequest::Gone) => return Ok(()),
        Err(NoRequest::Invalid(status)) => (HttpResponse::error(status, format!("{status}\n")), true),
    };
    write_within(stream, &response.bytes(has_content), RESPONSE_TIME)?;
    stream.shutdown(Shutdown::Write)?;
    // If bytes are unread when the socket is closed, the kernel resets the connection, and the client
    // may lose the end of the response. So bytes behind the head are thrown away for a moment.
    let deadline = Instant::now() + CLOSE_TIME;
    let mut rest = [0; 4096];
    while let Ok(1..) = read_until(stream, &mut rest, deadline) {}
    Ok(())
}

/// The parts of a request's head that matter.
struct HttpRequest {
    method: String,
    /// Without the query.
    path: String,
    /// The media types that the client accepts.
    accept: String,
}

impl HttpRequest {
    fn response(&self, path: &str, page: &impl Fn(&str) -> HttpPage) -> HttpResponse {
        if self.path != path {
            return HttpResponse::error("404 Not Found", format!("metrics are at {path}\n"));
        }
        if !matches!(self.method.as_str(), "GET" | "HEAD") {
            let text = format!("{path} accepts GET and HEAD\n");
            return HttpResponse {
                more: "Allow: GET, HEAD\r\n",
                ..HttpResponse::error("405 Method Not Allowed", text)
            };
        }
        HttpResponse { status: "200 OK", more: "", page: page(&self.accept) }
    }
}

/// The reason why there is no request to answer.
enum NoRequest {
    /// The client sends no valid request and gets this status.
    Invalid(&'static str),
    /// The client sent nothing, or the connection failed.
    Gone,
}

fn read_request(stream: &mut TcpStream) -> Result<HttpRequest, NoRequest> {
    let deadline = Instant::now() + REQUEST_TIME;
    let mut bytes = vec![0; HEAD_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match read_until(stream, &mut bytes[filled..], deadline) {
            Ok(0) if filled == 0 => return Err(NoRequest::Gone),
            Ok(0) => return Err(NoRequest::Invalid(BAD_REQUEST)),
            Ok(count) => filled += count,
            Err(error) if is_timeout(&error) => return Err(NoRequest::Invalid(REQUEST_TIMEOUT)),
            Err(_) => return Err(NoRequest::Gone),
        }
        if let Some(request) = parse(&bytes[..filled]).map_err(NoRequest::Invalid)? {
            return Ok(request);
        }
    }
    Err(NoRequest::Invalid(HEAD_TOO_LARGE))
}

/// The request in these bytes; `None` if its head is not complete. Fails with the status of the
/// response.
fn parse(bytes: &[u8]) -> Result<Option<HttpRequest>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; HEADER_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let status = request.parse(bytes).map_err(|error| match error {
        httparse::Error::TooManyHeaders => HEAD_TOO_LARGE,
        _ => BAD_REQUEST,
    })?;
    if status.is_partial() {
        return Ok(None);
    }
    let accept = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("accept"));
    let accept: Vec<_> = accept.map(|field| String::from_utf8_lossy(field.value)).collect();
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let method = request.method.unwrap_or_default().to_owned();
    Ok(Some(HttpRequest { method, path: path.to_owned(), accept: accept.join(", ") }))
}

struct HttpResponse {
    status: &'static str,
    /// Header fields beside those of all responses.
    more: &'static str,
    page: HttpPage,
}

impl HttpResponse {
    const fn error(status: &'static str, text: String) -> Self {
        Self { status, more: "", page: HttpPage { media_type: "text/plain; charset=utf-8", text } }
    }

    /// The response on the wire. The response to HEAD has no content, but its length.
    fn bytes(&self, has_content: bool) -> Vec<u8> {
        let Self { status, more, page: HttpPage { media_type, text } } = self;
        let date = jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT");
        let length = text.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nDate: {date}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n"
        );
        let content = if has_content { text.as_str() } else { "" };
        [head.as_str(), content].concat().into_bytes()
    }
}

/// Reads bytes; 0 at the end of the connection.
fn read_until(stream: &mut TcpStream, bytes: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        stream.set_read_timeout(Some(time_until(deadline)?))?;
        match stream.read(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Writes all bytes. A timeout of single writes would not end with a client that reads slowly.
fn write_within(stream: &mut TcpStream, mut bytes: &[u8], time: Duration) -> io::Result<()> {
    let deadline = Instant::now() + time;
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_until(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn time_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn is_timeout(error: &io::Error) -> bool {
    // Unix reports the timeout of a socket as a read that would block.
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status, and the text of the page with the media types of the client.
    fn answered(head: &str) -> (&'static str, String) {
        let page = |accept: &str| HttpPage { media_type: "text/plain", text: accept.to_owned() };
        let request = parse(head.as_bytes()).unwrap().unwrap();
        let response = request.response("/metrics", &page);
        (response.status, response.page.text)
    }

    #[test]
    fn the_page_is_served_for_get_and_head_only() {
        let found = answered("GET /metrics?a=b HTTP/1.0\r\nACCEPT: text/plain\r\nAccept: a/b;q=0.5\r\n\r\n");
        assert_eq!(found, ("200 OK", "text/plain, a/b;q=0.5".to_owned()));
        assert_eq!(answered("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), ("200 OK", String::new()));
        for (method, path, status) in [
            ("GET", "/", "404 Not Found"),
            ("GET", "/metrics/", "404 Not Found"),
            ("POST", "/other", "404 Not Found"),
            ("POST", "/metrics", "405 Method Not Allowed"),
            ("OPTIONS", "/metrics", "405 Method Not Allowed"),
        ] {
            assert_eq!(answered(&format!("{method} {path} HTTP/1.1\r\n\r\n")).0, status, "{method} {path}");
        }
    }

    #[test]
    fn a_head_is_complete_invalid_or_too_large() {
        let status = |bytes: &[u8]| parse(bytes).map(|request| request.is_some());
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nHost: x\r\n"), Ok(false));
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Ok(true));
        // The first bytes of TLS, and those of HTTP/2.
        for bytes in [&b"\x16\x03\x01\x02\x00\x01"[..], b"PRI * HTTP/2.0\r\n\r\n", b"GARBAGE\r\n\r\n"] {
            assert_eq!(status(bytes), Err(BAD_REQUEST));
        }
        let with_fields = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(count));
        assert_eq!(status(with_fields(HEADER_FIELDS).as_bytes()), Ok(true));
        assert_eq!(status(with_fields(HEADER_FIELDS + 1).as_bytes()), Err(HEAD_TOO_LARGE));
    }

    #[test]
    fn a_response_to_head_has_the_length_and_no_content() {
        let response = HttpResponse::error(BAD_REQUEST, "four".to_owned());
        let [with, without] = [true, false].map(|has| String::from_utf8(response.bytes(has)).unwrap());
        assert_eq!(with, format!("{without}four"));
        assert!(without.starts_with("HTTP/1.1 400 Bad Request\r\nDate: "), "{without}");
        assert!(without.contains("\r\nContent-Length: 4\r\n"), "{without}");
        assert!(without.ends_with("\r\nConnection: close\r\n\r\n"), "{without}");
    }
}
