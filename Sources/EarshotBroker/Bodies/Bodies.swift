internal import EarshotCore
internal import EarshotLoop

/// Bodies that the core names: inline ones in memory, and spilled ones in one file, by the name of their content.
final class Bodies {
    private let file: SpillFile
    private var inline: [BodyID: [UInt8]] = [:]
    private var lastID: UInt64 = 0
    private var extents: [String: SpillFile.Extent] = [:]
    /// Bodies that could not be spilled, until their names are released. Terminals of the same pass name them.
    private var unspilled: [String: [UInt8]] = [:]
    /// Files of the spool that terminals name and that could not be written, until their names are released.
    var unwritten: Set<String> = []

    init(spillingTo file: SpillFile) {
        self.file = file
    }

    /// Whether there are no inline bodies.
    var isEmpty: Bool { inline.isEmpty }

    /// Adds an inline body.
    func insert(_ body: [UInt8]) -> BodyID {
        lastID += 1
        let id = BodyID(rawValue: lastID)
        inline[id] = body
        return id
    }

    /// An inline body; nil if it was released or spilled.
    subscript(id: BodyID) -> [UInt8]? { inline[id] }

    func release(_ id: BodyID) { inline[id] = nil }

    /// Spills an inline body until its name is released. A body that cannot be written stays in memory under both names,
    /// and the error is thrown.
    func spill(_ id: BodyID, as name: String) throws(SystemError) {
        guard let body = inline[id] else { return }
        do throws(SystemError) {
            if extents[name] == nil { extents[name] = try file.write(body) }
            unspilled[name] = nil
            inline[id] = nil
        } catch {
            unspilled[name] = body
            throw error
        }
    }

    /// Returns a copy of a spilled body; nil if there is none of this name, or if it cannot be read.
    func spilled(_ name: String) -> [UInt8]? {
        guard let place = extents[name] else { return unspilled[name] }
        return file.read(place, 0..<place.count)
    }

    /// Removes a spilled body, if there is one of this name.
    func release(_ name: String) {
        unwritten.remove(name)
        unspilled[name] = nil
        if let place = extents.removeValue(forKey: name) { file.free(place) }
    }
}
