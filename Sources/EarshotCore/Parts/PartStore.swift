/// Partial bodies kept for resumption.
///
/// A part belongs to the flight that resumes it, or is set aside under the key of an ended flight:
///
/// ```
///             keep            take, or replaced by a newer part
///  (absent) ────────→ kept  ────────────────────────────────────→ (absent)
///      │               ↑
///      │               │ reclaim
///      │   setAside    │          expire, evictOldest, or replaced
///      └───────────→ aside ─────────────────────────────────────→ (absent)
/// ```
///
/// Only `insert` and `remove` make transitions. The store deletes no files: its functions return the parts whose files
/// the caller deletes.
struct PartStore {
    /// Bounds of the store.
    struct Limits: Equatable {
        /// Maximum number of flights with a part.
        var kept: Int
        /// Maximum number of parts set aside.
        var aside: Int
        /// Maximum number of bytes of all parts set aside.
        var asideBytes: Int

        init(kept: Int, aside: Int, asideBytes: Int) {
            self.kept = kept
            self.aside = aside
            self.asideBytes = asideBytes
        }

        init(_ limits: CoreLimits) {
            self.init(kept: limits.keptParts, aside: limits.partsAside, asideBytes: limits.partsAsideBytes)
        }
    }

    /// Owner of a part.
    private enum Place {
        case flight(Handle<Flight>)
        case aside(FlightKey, serial: UInt64)
    }

    var limits: Limits
    /// Bytes of all parts. A wrapping sum, because workers report some of the sizes.
    private(set) var bytes = 0
    /// Parts by flight.
    private(set) var kept: [Handle<Flight>: KeptPart] = [:]
    /// Parts by the key of their former flight.
    private(set) var aside: [FlightKey: PartAside] = [:]
    private var lastSerial: UInt64 = 0

    init(limits: Limits) {
        self.limits = limits
    }

    var isEmpty: Bool { kept.isEmpty && aside.isEmpty }

    // MARK: Flights

    func hasPart(of flight: Handle<Flight>) -> Bool { kept[flight] != nil }

    /// Keeps a part for a flight and replaces an earlier one.
    ///
    /// - Returns: the part to delete: the earlier one, or the new one if the limit is reached.
    mutating func keep(_ part: KeptPart, for flight: Handle<Flight>) -> KeptPart? {
        let earlier = take(flight)
        guard earlier != nil || kept.count < limits.kept else { return part }
        insert(part, at: .flight(flight))
        return earlier
    }

    /// Removes the part of a flight and returns it.
    mutating func take(_ flight: Handle<Flight>) -> KeptPart? {
        // Nearly always empty, and called for each flight.
        kept.isEmpty ? nil : remove(from: .flight(flight))
    }

    // MARK: Parts set aside

    /// Sets a part aside under the key of its flight and replaces an earlier part of that key. Evicts the oldest parts
    /// beyond the limits.
    ///
    /// - Returns: the serial of the expiry timer, or nil if the part is too large; and the parts to delete.
    mutating func setAside(_ part: KeptPart, under key: FlightKey) -> (serial: UInt64?, deleted: [KeptPart]) {
        guard limits.aside > 0, part.bytes <= limits.asideBytes else { return (nil, [part]) }
        var deleted: [KeptPart] = []
        if let earlier = aside[key], let part = remove(from: .aside(key, serial: earlier.serial)) {
            deleted.append(part)
        }
        func isOver() -> Bool {
            aside.count >= limits.aside || aside.values.reduce(part.bytes) { $0 + $1.part.bytes } > limits.asideBytes
        }
        while isOver(), let oldest = evictOldest() { deleted.append(oldest) }
        lastSerial += 1
        insert(part, at: .aside(key, serial: lastSerial))
        return (lastSerial, deleted)
    }

    /// Moves the part set aside under a key to a new flight.
    ///
    /// - Returns: the part to delete, as `keep` does.
    mutating func reclaim(_ key: FlightKey, for flight: Handle<Flight>) -> KeptPart? {
        guard !aside.isEmpty, let entry = aside[key], let part = remove(from: .aside(key, serial: entry.serial)) else {
            return nil
        }
        return keep(part, for: flight)
    }

    /// Whether the part with this serial is still set aside. O(parts set aside).
    func isAside(_ serial: UInt64) -> Bool { aside.values.contains { $0.serial == serial } }

    /// Removes the part with this serial.
    ///
    /// - Returns: the part to delete; nil if the timer is stale.
    mutating func expire(_ serial: UInt64) -> KeptPart? {
        guard let entry = aside.first(where: { $0.value.serial == serial }) else { return nil }
        return remove(from: .aside(entry.key, serial: serial))
    }

    /// Removes the oldest of the parts set aside. O(parts set aside).
    ///
    /// - Returns: the part to delete; nil if there is none.
    mutating func evictOldest() -> KeptPart? {
        guard let oldest = aside.min(by: { $0.value.serial < $1.value.serial }) else { return nil }
        return remove(from: .aside(oldest.key, serial: oldest.value.serial))
    }

    // MARK: Transitions

    /// Stores a part at an empty place.
    private mutating func insert(_ part: KeptPart, at place: Place) {
        let earlier: KeptPart?
        switch place {
        case .flight(let flight): earlier = kept.updateValue(part, forKey: flight)
        case .aside(let key, let serial):
            earlier = aside.updateValue(PartAside(part: part, serial: serial), forKey: key)?.part
        }
        precondition(earlier == nil, "part \(earlier?.file ?? "") is still at \(place)")
        bytes &+= part.bytes
    }

    /// Empties a place. The serial of a part set aside must be the current one.
    private mutating func remove(from place: Place) -> KeptPart? {
        let part: KeptPart?
        switch place {
        case .flight(let flight): part = kept.removeValue(forKey: flight)
        case .aside(let key, let serial):
            let entry = aside.removeValue(forKey: key)
            precondition(entry?.serial == serial, "part \(serial) is not at \(place)")
            part = entry?.part
        }
        bytes &-= part?.bytes ?? 0
        return part
    }

    // MARK: Memory and checks

    /// Releases spare capacity beyond `least` entries.
    mutating func releaseRoom(least: Int) { kept.releaseRoom(least: least) }

    /// Returns a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        let sum = kept.values.reduce(0) { $0 &+ $1.bytes } &+ aside.values.reduce(0) { $0 &+ $1.part.bytes }
        if bytes != sum { faults.append("11: parts have \(sum) bytes, not \(bytes)") }
        if kept.count > limits.kept { faults.append("11: \(kept.count) flights have parts") }
        if aside.count > limits.aside { faults.append("11: \(aside.count) parts are set aside") }
        let asideBytes = aside.values.reduce(0) { $0 &+ $1.part.bytes }
        if asideBytes > limits.asideBytes { faults.append("11: parts set aside have \(asideBytes) bytes") }
        let serials = Set(aside.values.map(\.serial))
        if serials.count < aside.count || serials.contains(where: { $0 > lastSerial }) {
            faults.append("12: parts set aside share a serial")
        }
        let files = kept.values.map(\.file) + aside.values.map(\.part.file)
        if Set(files).count < files.count { faults.append("12: two parts share a file") }
        return faults
    }
}
