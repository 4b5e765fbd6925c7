internal import EarshotLoop
internal import Glibc

/// Storage of spilled bodies: one unlinked file that contains all of them.
///
/// A file for each item would cost the file system a hundred times more than a small body, and block the loop
/// meanwhile. One slow reader would then delay all clients.
final class SpillFile {
    /// Position of an item in the file.
    struct Extent {
        fileprivate let piece: Int32
        /// Offset from the start of the piece, in bytes.
        fileprivate let offset: UInt32
        private let length: UInt32

        var count: Int { Int(length) }

        fileprivate init(piece: Int, offset: Int, count: Int) {
            self.piece = Int32(piece)
            self.offset = UInt32(offset)
            length = UInt32(count)
        }
    }

    /// Unit of reuse in bytes. Reusing whole pieces needs no search; a long-lived item occupies one piece. The file is
    /// truncated when it is empty.
    private static let pieceBytes = 4 << 20

    /// A piece of the file.
    private struct Piece {
        let start: Int
        let capacity: Int
        var usedBytes = 0
        /// Number of live items in the piece.
        var liveItems = 0
    }

    private let spool: SpoolFiles
    /// Descriptor of the file; -1 before the first item.
    private var file: Int32 = -1
    private var pieces: [Piece] = []
    /// Number of live items in all pieces.
    private var liveItems = 0
    /// Index of the piece that is being filled; -1 if there is none.
    private var currentIndex = -1
    /// Other pieces without live items.
    private var unused: [Int] = []

    init(in spool: SpoolFiles) {
        self.spool = spool
    }

    deinit {
        if file >= 0 { close(file) }
    }

    /// Appends an item.
    ///
    /// - Returns: Its position, valid until `free`.
    func write(_ bytes: [UInt8]) throws(SystemError) -> Extent {
        if file < 0 { file = try spool.unnamedFile() }
        let piece = pieceWithRoom(for: bytes.count)
        let offset = pieces[piece].usedBytes
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes[written...].withUnsafeBytes {
                unsafe pwrite(file, $0.baseAddress, $0.count, pieces[piece].start + offset + written)
            }
            guard count > 0 || (count < 0 && errno == EINTR) else {
                throw SystemError("write a spilled body", number: count < 0 ? errno : ENOSPC)
            }
            written += max(0, count)
        }
        pieces[piece].usedBytes += bytes.count
        pieces[piece].liveItems += 1
        liveItems += 1
        return Extent(piece: piece, offset: offset, count: bytes.count)
    }

    /// Returns a copy of a part of an item; nil if it cannot be read.
    func read(_ place: Extent, _ range: Range<Int>) -> [UInt8]? {
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

    /// Frees an item.
    func free(_ place: Extent) {
        let piece = Int(place.piece)
        pieces[piece].liveItems -= 1
        liveItems -= 1
        if liveItems == 0 {
            // After a failure later items overwrite the old content.
            ftruncate(file, 0)
            pieces = []
            unused = []
            currentIndex = -1
        } else if pieces[piece].liveItems == 0 {
            pieces[piece].usedBytes = 0
            if piece != currentIndex { unused.append(piece) }
        }
    }

    /// Returns the current piece, otherwise an unused one, otherwise a new one at the end of the file.
    private func pieceWithRoom(for count: Int) -> Int {
        func hasRoom(_ piece: Int) -> Bool { pieces[piece].capacity - pieces[piece].usedBytes >= count }
        if currentIndex >= 0, hasRoom(currentIndex) { return currentIndex }
        // The current piece is empty only if the item is too large for it.
        if currentIndex >= 0, pieces[currentIndex].liveItems == 0 { unused.append(currentIndex) }
        if let next = unused.last, hasRoom(next) {
            unused.removeLast()
            currentIndex = next
        } else {
            let end = pieces.last.map { $0.start + $0.capacity } ?? 0
            pieces.append(Piece(start: end, capacity: max(Self.pieceBytes, count)))
            currentIndex = pieces.count - 1
        }
        return currentIndex
    }
}
