/// Receiver of a transfer's data.
///
/// The methods are called from inside libcurl: they record data and return. They must not use the multi handle.
public protocol TransferSink: AnyObject {
    /// Called before each connection is opened, and again before the request is sent on a new or reused one.
    ///
    /// - Parameter address: Numeric address of the server or proxy, without brackets and zone.
    /// - Returns: false to deny the address: libcurl tries the next one, or the transfer fails.
    func admits(address: String) -> Bool

    /// Receives one line of a header block with its line end: a status line, a field, the empty line that ends the
    /// block, or a trailer field after the body. A transfer can have several blocks (1xx, CONNECT).
    ///
    /// - Returns: false to abort the transfer.
    func received(headerLine: Span<UInt8>) -> Bool

    /// Receives bytes of the body, without transfer coding and with content coding; never empty.
    func received(body: Span<UInt8>) -> Reception
}
