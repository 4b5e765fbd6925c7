internal import EarshotLoop
internal import Glibc

/// Storage of spilled bodies: one unlinked file that contains all of them.
///
/// A file for each item would cost the file system a hundred times more than a small body, and block the loop
/// meanwhile. One slow reader would then delay all clients.
final class SpillFile {
    /// Position of an item in the file.
    struct Extent {
        fileprivate let pieceIndex: Int32
        /// Offset from the start of the piece, in bytes.
        fileprivate let offset: UInt32
        private let storedLength: UInt32

        var byteCount: Int { Int(storedLength) }

        fileprivate init(pieceIndex: Int, offset: Int, byteCount: Int) {
            self.pieceIndex = Int32(pieceIndex)
            self.offset = UInt32(offset)
            storedLength = UInt32(byteCount)
        }
    }

    /// Unit of reuse in bytes. Reusing whole pieces needs no search; a long-lived item occupies one piece. The file is
    /// truncated when it is empty.
    private static let pieceBytes = 4 << 20

    /// A piece of the file.
    private struct Piece {
        let fileOffset: Int
        let capacityBytes: Int
        var usedBytes = 0
        /// Number of live items in the piece.
        var liveItemCount = 0
    }

    private let spool: SpoolFiles
    /// Descriptor of the file; -1 before the first item.
    private var descriptor: Int32 = -1
    private var pieces: [Piece] = []
    /// Number of live items in all pieces.
    private var liveItemCount = 0
    /// Index of the piece that is being filled; -1 if there is none.
    private var currentPieceIndex = -1
    /// Other pieces without live items.
    private var unusedPieceIndices: [Int] = []

    init(in spool: SpoolFiles) {
        self.spool = spool
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
    }

    /// Appends an item.
    ///
    /// - Returns: Its position, valid until `freeItem`.
    func write(_ bytes: [UInt8]) throws(SystemError) -> Extent {
        if descriptor < 0 { descriptor = try spool.makeUnnamedFile() }
        let piece = pieceWithRoom(for: bytes.count)
        let offset = pieces[piece].usedBytes
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes[written...].withUnsafeBytes {
                unsafe pwrite(descriptor, $0.baseAddress, $0.count, pieces[piece].fileOffset + offset + written)
            }
            guard count > 0 || (count < 0 && errno == EINTR) else {
                throw SystemError("write a spilled body", number: count < 0 ? errno : ENOSPC)
            }
            written += max(0, count)
        }
        pieces[piece].usedBytes += bytes.count
        pieces[piece].liveItemCount += 1
        liveItemCount += 1
        return Extent(pieceIndex: piece, offset: offset, byteCount: bytes.count)
    }

    /// Returns a copy of a part of an item; nil if it cannot be read.
    func read(_ place: Extent, _ range: Range<Int>) -> [UInt8]? {
        let start = pieces[Int(place.pieceIndex)].fileOffset + Int(place.offset) + range.lowerBound
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: range.count) { target, read in
            while read < range.count {
                let rest = unsafe UnsafeMutableRawBufferPointer(
                    rebasing: UnsafeMutableRawBufferPointer(target)[read..<range.count])
                let count = unsafe pread(descriptor, rest.baseAddress, rest.count, start + read)
                guard count > 0 || (count < 0 && errno == EINTR) else { break }
                read += max(0, count)
            }
        }
        return bytes.count == range.count ? bytes : nil
    }

    /// Frees an item.
    func freeItem(at place: Extent) {
        let piece = Int(place.pieceIndex)
        pieces[piece].liveItemCount -= 1
        liveItemCount -= 1
        if liveItemCount == 0 {
            // After a failure later items overwrite the old content.
            ftruncate(descriptor, 0)
            pieces = []
            unusedPieceIndices = []
            currentPieceIndex = -1
        } else if pieces[piece].liveItemCount == 0 {
            pieces[piece].usedBytes = 0
            if piece != currentPieceIndex { unusedPieceIndices.append(piece) }
        }
    }

    /// Returns the current piece, otherwise an unused one, otherwise a new one at the end of the file.
    private func pieceWithRoom(for count: Int) -> Int {
        func hasRoom(_ piece: Int) -> Bool { pieces[piece].capacityBytes - pieces[piece].usedBytes >= count }
        if currentPieceIndex >= 0, hasRoom(currentPieceIndex) { return currentPieceIndex }
        // The current piece is empty only if the item is too large for it.
        if currentPieceIndex >= 0, pieces[currentPieceIndex].liveItemCount == 0 {
            unusedPieceIndices.append(currentPieceIndex)
        }
        if let next = unusedPieceIndices.last, hasRoom(next) {
            unusedPieceIndices.removeLast()
            currentPieceIndex = next
        } else {
            let end = pieces.last.map { $0.fileOffset + $0.capacityBytes } ?? 0
            pieces.append(Piece(fileOffset: end, capacityBytes: max(Self.pieceBytes, count)))
            currentPieceIndex = pieces.count - 1
        }
        return currentPieceIndex
    }
}
