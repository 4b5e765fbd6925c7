internal import EarshotLoop

/// Inline bodies that wait too long for memory, by the name of their content.
final class WaitingBodies {
    private let file: WaitingFile
    private var places: [String: WaitingFile.Place] = [:]
    /// Bodies that could not be written, until they are removed.
    private var unwritten: [String: [UInt8]] = [:]

    init(in file: WaitingFile) {
        self.file = file
    }

    /// Keeps a body until `remove`. One that cannot be written is kept in memory, for who looks for it meanwhile.
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

    /// A copy of a body; nil if it is not here, or cannot be read.
    func body(_ name: String) -> [UInt8]? {
        guard let place = places[name] else { return unwritten[name] }
        return file.read(place, 0..<place.count)
    }

    /// Forgets a body; nothing happens if it is not here.
    func remove(_ name: String) {
        unwritten[name] = nil
        if let place = places.removeValue(forKey: name) { file.free(place) }
    }
}
