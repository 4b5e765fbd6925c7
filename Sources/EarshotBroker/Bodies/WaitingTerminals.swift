internal import EarshotCore
internal import EarshotLoop

/// Spilled terminals: heads, each followed by its body. Each costs twenty bytes of memory, because there may be very
/// many.
final class WaitingTerminals {
    /// A terminal as it is sent, without its sequence number.
    struct Content {
        var head: [UInt8]
        var body: [UInt8]?
    }

    private struct Record {
        let place: WaitingFile.Place
        /// Length of the head, with which the item starts.
        let headBytes: UInt32
    }

    private let file: WaitingFile
    /// Indexed by the core's numbers, which are small.
    private var records: [Record?] = []
    private var count = 0
    /// Terminals that could not be written, until they are forgotten.
    private var unwritten: [WaitingID: Content] = [:]

    init(in file: WaitingFile) {
        self.file = file
    }

    /// Spills a terminal until `forget`. A terminal that cannot be written is kept in memory, and the error is thrown.
    func keep(_ content: Content, as id: WaitingID) throws(SystemError) {
        do throws(SystemError) {
            let place = try file.write(content.head + (content.body ?? []))
            let number = Int(id.rawValue)
            while records.count <= number { records.append(nil) }
            records[number] = Record(place: place, headBytes: UInt32(content.head.count))
            count += 1
        } catch {
            unwritten[id] = content
            throw error
        }
    }

    /// Returns a copy of a terminal; nil if it cannot be read.
    func content(of id: WaitingID) -> Content? {
        guard let record = record(id) else { return unwritten[id] }
        let headBytes = Int(record.headBytes)
        guard let head = file.read(record.place, 0..<headBytes) else { return nil }
        guard record.place.count > headBytes else { return Content(head: head) }
        guard let body = file.read(record.place, headBytes..<record.place.count) else { return nil }
        return Content(head: head, body: body)
    }

    func forget(_ id: WaitingID) {
        unwritten[id] = nil
        guard let record = record(id) else { return }
        records[Int(id.rawValue)] = nil
        file.free(record.place)
        count -= 1
        // Releases the capacity that very many terminals needed.
        if count == 0 { records = [] }
    }

    private func record(_ id: WaitingID) -> Record? {
        let number = Int(id.rawValue)
        return number < records.count ? records[number] : nil
    }
}
