/// Partial bodies of interrupted attempts whose flights have not ended. A part belongs to the flight that resumes it:
///
/// ```
///            keep            take, or replaced by a newer part
/// (absent) ────────→ kept ────────────────────────────────────→ (absent)
/// ```
///
/// The store deletes no files: its functions return the parts whose files the caller deletes. Parts of ended flights are
/// in the shell's folder of parts.
struct PartStore {
    /// Maximum number of flights with a part.
    var limit: Int
    /// Whether the shell's folder of parts may have one.
    var mayHaveStored = false
    /// Bytes of all parts. A wrapping sum, because workers report some of the sizes.
    private(set) var bytes = 0
    /// Parts by flight.
    private(set) var kept: [Handle<Flight>: KeptPart] = [:]

    init(limit: Int) {
        self.limit = limit
    }

    var isEmpty: Bool { kept.isEmpty }

    func hasPart(of flight: Handle<Flight>) -> Bool { kept[flight] != nil }

    /// Keeps a part for a flight and replaces an earlier one.
    ///
    /// - Returns: the part to delete: the earlier one, or the new one if the limit is reached.
    mutating func keep(_ part: KeptPart, for flight: Handle<Flight>) -> KeptPart? {
        let earlier = take(flight)
        guard earlier != nil || kept.count < limit else { return part }
        kept[flight] = part
        bytes &+= part.bytes
        return earlier
    }

    /// Removes the part of a flight and returns it.
    mutating func take(_ flight: Handle<Flight>) -> KeptPart? {
        // Nearly always empty, and called for each flight.
        guard !kept.isEmpty, let part = kept.removeValue(forKey: flight) else { return nil }
        bytes &-= part.bytes
        return part
    }

    /// Releases spare capacity beyond `least` entries.
    mutating func releaseRoom(least: Int) { kept.releaseRoom(least: least) }

    /// Returns a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        let sum = kept.values.reduce(0) { $0 &+ $1.bytes }
        if bytes != sum { faults.append("11: parts have \(sum) bytes, not \(bytes)") }
        if kept.count > limit { faults.append("11: \(kept.count) flights have parts") }
        if Set(kept.values.map(\.file)).count < kept.count { faults.append("12: two parts share a file") }
        return faults
    }
}
