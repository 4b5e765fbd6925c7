/// A frame of which the rest is still to come.
struct PartialFrame {
    /// Bytes for which there is room before any came: who only says that much will follow gets no more.
    static let firstBytes = 65_536

    let header: Frame.Header
    private let count: Int
    /// What came of it, and the room behind that.
    var bytes: [UInt8]
    var filled = 0

    /// - Parameter count: bytes of the frame, which the header says.
    init(_ header: Frame.Header, count: Int) {
        self.header = header
        self.count = count
        bytes = [UInt8](repeating: 0, count: min(count, Self.firstBytes))
    }

    var isWhole: Bool { filled == count }

    /// Doubles the room, as far as there is more to come, once it is full.
    mutating func makeRoom() {
        guard filled == bytes.count else { return }
        bytes += repeatElement(0, count: min(bytes.count, count - bytes.count))
    }
}
