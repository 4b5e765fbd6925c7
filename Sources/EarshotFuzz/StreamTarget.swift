internal import EarshotLoop
internal import Glibc
internal import ZMTP

/// Fuzz target: a connection with an arbitrary peer. The messages and the end of the connection must not depend on how
/// the bytes are split.
///
/// An odd first byte means that the input contains the greeting. Half of the byte is the number of bytes per read.
enum StreamTarget {
    /// Result of an input.
    private struct Outcome: Equatable {
        var messages: [Message] = []
        var isOpen = false
        var isRefused = false
    }

    /// Maximum number of pieces per input, so that inputs stay fast.
    private static let maximumPieces = 64
    private static let greetingBytes: [UInt8] =
        [0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1] + Array("NULL".utf8) + [UInt8](repeating: 0, count: 48)
        + [4, 28] + Array("\u{5}READY\u{b}Socket-Type\0\0\0\u{6}DEALER".utf8)

    static func run(_ bytes: [UInt8]) {
        guard let first = bytes.first else { return }
        let input = (first & 1 == 0 ? greetingBytes : []) + bytes.dropFirst()
        guard let whole = outcome(of: input, pieceBytes: input.count),
            let cut = outcome(of: input, pieceBytes: max(Int(first / 2) + 1, input.count / maximumPieces + 1))
        else { return }
        precondition(whole == cut, "\(whole), and cut \(cut)")
    }

    /// Returns nil without descriptors.
    private static func outcome(of input: [UInt8], pieceBytes: Int) -> Outcome? {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        guard unsafe socketpair(AF_UNIX, kind, 0, &ends) == 0, let loop = try? EventLoop() else { return nil }
        defer { UnixSocket.close(ends[1]) }
        guard
            let stream = try? MessageStream(
                ends[0], as: .router, frameBytes: 2_000, maximumMessages: 10, loop: loop, onReady: {})
        else { return nil }
        // Makes the loop poll once for the written bytes without blocking.
        _ = loop.addHook { .noSleep }
        var outcome = Outcome()
        var rest = input[...]
        while !rest.isEmpty, !stream.isEnded {
            let piece = rest.prefix(pieceBytes)
            rest = rest.dropFirst(pieceBytes)
            _ = unsafe piece.withUnsafeBytes { unsafe UnixSocket.send(ends[1], $0) }
            var requested = 0
            _ = try? loop.run(until: {
                while let message = stream.next() { outcome.messages.append(message) }
                stream.flush()
                requested += 1
                return requested == 2 || stream.isEnded
            })
        }
        outcome.isOpen = stream.isOpen
        outcome.isRefused = stream.violation != nil
        return outcome
    }
}
