/// Incomplete incoming frame.
struct PartialFrame {
    /// Memory allocated before any content arrives, in bytes. A peer that only announces a long frame gets no more.
    static let firstBytes = 65_536

    let header: Frame.Header
    private let count: Int
    /// Received bytes, followed by unused space.
    var bytes: [UInt8]
    var filled = 0

    /// - Parameter count: Length of the frame in bytes, from its header.
    init(_ header: Frame.Header, count: Int) {
        self.header = header
        self.count = count
        bytes = [UInt8](repeating: 0, count: min(count, Self.firstBytes))
    }

    var isWhole: Bool { filled == count }

    /// Doubles a full buffer, up to the length of the frame.
    mutating func makeRoom() {
        guard filled == bytes.count else { return }
        bytes += repeatElement(0, count: min(bytes.count, count - bytes.count))
    }
}
