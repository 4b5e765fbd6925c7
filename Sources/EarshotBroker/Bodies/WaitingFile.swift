internal import EarshotLoop
internal import Glibc

/// What waits too long for memory, one behind the other in one file without a name.
///
/// A file of its own for each costs a file system a hundred times what a small body costs, and the loop waits for that:
/// one slow reader would hold up everybody.
final class WaitingFile {
    /// Where something is in it.
    struct Place {
        fileprivate let piece: Int32
        /// From the piece's start on.
        fileprivate let offset: UInt32
        private let length: UInt32

        var count: Int { Int(length) }

        fileprivate init(piece: Int, offset: Int, count: Int) {
            self.piece = Int32(piece)
            self.offset = UInt32(offset)
            length = UInt32(count)
        }
    }

    /// Room is used again by pieces of so many bytes, so that it needs no search: what waits for long holds one piece.
    /// The file is emptied when nothing waits.
    private static let pieceBytes = 4 << 20

    /// A part of the file.
    private struct Piece {
        let start: Int
        let capacity: Int
        var used = 0
        /// How many in it are waited for.
        var places = 0
    }

    private let spool: Spool
    /// -1 until something comes.
    private var file: Int32 = -1
    private var pieces: [Piece] = []
    /// How many are waited for.
    private var places = 0
    /// The piece that is being filled; -1 when there is none.
    private var current = -1
    /// Other pieces of which nothing is waited for.
    private var unused: [Int] = []

    init(in spool: Spool) {
        self.spool = spool
    }

    deinit {
        if file >= 0 { close(file) }
    }

    /// - Returns: where it is, until `free`.
    func write(_ bytes: [UInt8]) throws(SystemError) -> Place {
        if file < 0 { file = try spool.unnamedFile() }
        let piece = pieceWithRoom(for: bytes.count)
        let offset = pieces[piece].used
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes[written...].withUnsafeBytes {
                unsafe pwrite(file, $0.baseAddress, $0.count, pieces[piece].start + offset + written)
            }
            guard count > 0 || (count < 0 && errno == EINTR) else {
                throw SystemError("write what waits", number: count < 0 ? errno : ENOSPC)
            }
            written += max(0, count)
        }
        pieces[piece].used += bytes.count
        pieces[piece].places += 1
        places += 1
        return Place(piece: piece, offset: offset, count: bytes.count)
    }

    /// A copy of some of the bytes; nil if they cannot be read.
    func read(_ place: Place, _ range: Range<Int>) -> [UInt8]? {
        let start = pieces[Int(place.piece)].start + Int(place.offset) + range.lowerBound
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: range.count) { target, read in
            while read < range.count {
                let rest = unsafe UnsafeMutableRawBufferPointer(
                    rebasing: UnsafeMutableRawBufferPointer(target)[read..<range.count])
                let count = unsafe pread(file, rest.baseAddress, rest.count, start + read)
                guard count > 0 || (count < 0 && errno == EINTR) else { break }
                read += max(0, count)
            }
        }
        return bytes.count == range.count ? bytes : nil
    }

    /// Nobody waits for it any more.
    func free(_ place: Place) {
        let piece = Int(place.piece)
        pieces[piece].places -= 1
        places -= 1
        if places == 0 {
            // If it fails, what comes next is written over what stays.
            ftruncate(file, 0)
            pieces = []
            unused = []
            current = -1
        } else if pieces[piece].places == 0 {
            pieces[piece].used = 0
            if piece != current { unused.append(piece) }
        }
    }

    /// The current piece, else an unused one, else a new one at the end of the file.
    private func pieceWithRoom(for count: Int) -> Int {
        func hasRoom(_ piece: Int) -> Bool { pieces[piece].capacity - pieces[piece].used >= count }
        if current >= 0, hasRoom(current) { return current }
        // The last one is left without anything only by something too large for it.
        if current >= 0, pieces[current].places == 0 { unused.append(current) }
        if let next = unused.last, hasRoom(next) {
            unused.removeLast()
            current = next
        } else {
            let end = pieces.last.map { $0.start + $0.capacity } ?? 0
            pieces.append(Piece(start: end, capacity: max(Self.pieceBytes, count)))
            current = pieces.count - 1
        }
        return current
    }
}
