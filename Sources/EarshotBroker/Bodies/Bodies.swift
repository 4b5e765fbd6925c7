internal import EarshotCore
internal import EarshotLoop

/// Bodies that the core names: inline ones in memory, and spilled ones in one file, by the name of their content.
final class Bodies {
    private let spillFile: SpillFile
    private var inlineBodies: [BodyID: [UInt8]] = [:]
    private var lastBodyID: UInt64 = 0
    private var spilledExtents: [String: SpillFile.Extent] = [:]
    /// Bodies that could not be spilled, until their names are released. Terminals of the same pass name them.
    private var unspillableBodies: [String: [UInt8]] = [:]
    /// Files of the spool that terminals name and that could not be written, until their names are released.
    var unwrittenFileNames: Set<String> = []

    init(spillingTo file: SpillFile) {
        self.spillFile = file
    }

    /// Whether there are no inline bodies.
    var isEmpty: Bool { inlineBodies.isEmpty }

    /// Adds an inline body.
    func insert(_ body: [UInt8]) -> BodyID {
        lastBodyID += 1
        let id = BodyID(rawValue: lastBodyID)
        inlineBodies[id] = body
        return id
    }

    /// An inline body; nil if it was released or spilled.
    subscript(id: BodyID) -> [UInt8]? { inlineBodies[id] }

    func releaseBody(_ id: BodyID) { inlineBodies[id] = nil }

    /// Spills an inline body until its name is released. A body that cannot be written stays in memory under both
    /// names, and the error is thrown.
    func spill(_ id: BodyID, toFileNamed name: String) throws(SystemError) {
        guard let body = inlineBodies[id] else { return }
        do throws(SystemError) {
            if spilledExtents[name] == nil { spilledExtents[name] = try spillFile.write(body) }
            unspillableBodies[name] = nil
            inlineBodies[id] = nil
        } catch {
            unspillableBodies[name] = body
            throw error
        }
    }

    /// Returns a copy of a spilled body; nil if there is none of this name, or if it cannot be read.
    func readSpilledBody(named name: String) -> [UInt8]? {
        guard let place = spilledExtents[name] else { return unspillableBodies[name] }
        return spillFile.read(place, 0..<place.byteCount)
    }

    /// Removes a spilled body, if there is one of this name.
    func releaseFile(named name: String) {
        unwrittenFileNames.remove(name)
        unspillableBodies[name] = nil
        if let place = spilledExtents.removeValue(forKey: name) { spillFile.freeItem(at: place) }
    }
}
