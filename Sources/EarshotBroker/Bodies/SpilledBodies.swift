internal import EarshotLoop

/// Spilled inline bodies, by the name of their content.
final class SpilledBodies {
    private let file: SpillFile
    private var places: [String: SpillFile.Place] = [:]
    /// Bodies that could not be written, until they are removed.
    private var unwritten: [String: [UInt8]] = [:]

    init(in file: SpillFile) {
        self.file = file
    }

    /// Spills a body until `remove`. A body that cannot be written is kept in memory, and the error is thrown.
    func keep(_ body: [UInt8], as name: String) throws(SystemError) {
        guard places[name] == nil else { return }
        do throws(SystemError) {
            places[name] = try file.write(body)
            unwritten[name] = nil
        } catch {
            unwritten[name] = body
            throw error
        }
    }

    /// Returns a copy of a body; nil if it is not here or cannot be read.
    func body(_ name: String) -> [UInt8]? {
        guard let place = places[name] else { return unwritten[name] }
        return file.read(place, 0..<place.count)
    }

    /// Removes a body, if it is here.
    func remove(_ name: String) {
        unwritten[name] = nil
        if let place = places.removeValue(forKey: name) { file.free(place) }
    }
}
