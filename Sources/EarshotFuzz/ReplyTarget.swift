internal import RESP

/// Fuzz target: replies of a cluster's engine. The result does not depend on how the input is split.
///
/// The first byte is the number of bytes per piece.
enum ReplyTarget {
    private static let replyBytes = 512

    static func run(_ bytes: [UInt8]) {
        guard let pieceBytes = bytes.first, pieceBytes > 0 else { return }
        let input = bytes.dropFirst()
        let single = outcome(of: input, pieceBytes: 1)
        let pieces = outcome(of: input, pieceBytes: Int(pieceBytes))
        // More pieces detect a reply above the bound earlier.
        guard single.isSound, pieces.isSound else { return }
        precondition(single.replies == pieces.replies, "\(single.replies), and in pieces \(pieces.replies)")
    }

    private static func outcome(of input: ArraySlice<UInt8>, pieceBytes: Int) -> (replies: [Reply], isSound: Bool) {
        var reader = ReplyReader(maximumReplyBytes: replyBytes)
        var replies: [Reply] = []
        var rest = input
        while !rest.isEmpty {
            do throws(ReplyReader.MalformedReply) {
                try reader.feed(rest.prefix(pieceBytes), into: &replies)
            } catch {
                return (replies, false)
            }
            rest = rest.dropFirst(pieceBytes)
        }
        return (replies, true)
    }
}
