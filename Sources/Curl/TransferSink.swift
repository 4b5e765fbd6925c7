/// Who takes what a transfer receives, while it arrives.
///
/// The methods run inside libcurl: they note facts and return. They may not touch the multi handle.
public protocol TransferSink: AnyObject {
    /// Asked before each connection is opened, and again before the request goes out on one, be it an old one.
    ///
    /// - Parameter address: The other end's, or the proxy's: numeric, without brackets and zone.
    /// - Returns: false to go on without it: to the name's next address, or to the end.
    func admits(address: String) -> Bool

    /// One line of a header block with its line end: a status line, a field, the empty line that ends the block, and
    /// after the body the trailer fields. A transfer can have more than one block (1xx, CONNECT).
    ///
    /// - Returns: false to abort the transfer.
    func received(headerLine: Span<UInt8>) -> Bool

    /// Some bytes of the body, without transfer coding and with content coding; never empty.
    func received(body: Span<UInt8>) -> Reception
}
