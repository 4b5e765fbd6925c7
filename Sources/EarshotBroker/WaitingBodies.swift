internal import EarshotLoop
internal import Glibc

/// Inline bodies that wait too long for memory, by the name of their content, one behind the other in one file without
/// a name.
///
/// A file of its own for each costs a file system a hundred times what a small body costs, and the loop waits for that:
/// one slow reader would hold up everybody.
final class WaitingBodies {
    /// Room is used again by pieces of so many bytes, so that it needs no search: one body that waits for long holds
    /// one piece. The file is emptied when nothing waits.
    private static let pieceBytes = 4 << 20

    /// A part of the file.
    private struct Piece {
        let start: Int
        let capacity: Int
        var used = 0
        /// How many in it are waited for.
        var bodies = 0
    }

    private struct Place {
        var piece: Int
        var offset: Int
        var count: Int
    }

    private let spool: Spool
    /// -1 until the first body comes.
    private var file: Int32 = -1
    private var places: [String: Place] = [:]
    /// Bodies that could not be written, until they are removed.
    private var unwritten: [String: [UInt8]] = [:]
    private var pieces: [Piece] = []
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

    /// Keeps a body until `remove`. One that cannot be written is kept in memory, for who looks for it meanwhile.
    func keep(_ body: [UInt8], as name: String) throws(SystemError) {
        guard places[name] == nil else { return }
        do throws(SystemError) {
            try write(body, as: name)
            unwritten[name] = nil
        } catch {
            unwritten[name] = body
            throw error
        }
    }

    private func write(_ bytes: [UInt8], as name: String) throws(SystemError) {
        if file < 0 { file = try spool.unnamedFile() }
        let piece = pieceWithRoom(for: bytes.count)
        let offset = pieces[piece].start + pieces[piece].used
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes[written...].withUnsafeBytes {
                unsafe pwrite(file, $0.baseAddress, $0.count, offset + written)
            }
            guard count > 0 || (count < 0 && errno == EINTR) else {
                throw SystemError("write a waiting body", number: count < 0 ? errno : ENOSPC)
            }
            written += max(0, count)
        }
        places[name] = Place(piece: piece, offset: offset, count: bytes.count)
        pieces[piece].used += bytes.count
        pieces[piece].bodies += 1
    }

    /// A copy of a body; nil if it is not here, or cannot be read.
    func body(_ name: String) -> [UInt8]? {
        guard let place = places[name] else { return unwritten[name] }
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: place.count) { target, read in
            while read < place.count {
                let rest = unsafe UnsafeMutableRawBufferPointer(
                    rebasing: UnsafeMutableRawBufferPointer(target)[read...])
                let count = unsafe pread(file, rest.baseAddress, rest.count, place.offset + read)
                guard count > 0 || (count < 0 && errno == EINTR) else { break }
                read += max(0, count)
            }
        }
        return bytes.count == place.count ? bytes : nil
    }

    /// Forgets a body; nothing happens if it is not here.
    func remove(_ name: String) {
        unwritten[name] = nil
        guard let place = places.removeValue(forKey: name) else { return }
        pieces[place.piece].bodies -= 1
        if places.isEmpty {
            // If it fails, the next bodies are written over what stays.
            ftruncate(file, 0)
            pieces = []
            unused = []
            current = -1
        } else if pieces[place.piece].bodies == 0 {
            pieces[place.piece].used = 0
            if place.piece != current { unused.append(place.piece) }
        }
    }

    /// The current piece, else an unused one, else a new one at the end of the file.
    private func pieceWithRoom(for count: Int) -> Int {
        func hasRoom(_ piece: Int) -> Bool { pieces[piece].capacity - pieces[piece].used >= count }
        if current >= 0, hasRoom(current) { return current }
        // The last one is left without anything only by a body too large for it.
        if current >= 0, pieces[current].bodies == 0 { unused.append(current) }
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
