/// Partial bodies of interrupted attempts whose flights have not ended. A part belongs to the flight that resumes it:
///
/// ```
///            keep            take, or replaced by a newer part
/// (absent) ────────→ kept ────────────────────────────────────→ (absent)
/// ```
///
/// The store deletes no files, and `Parts` bounds it by the quotas. Parts of ended flights are in the shell's folder of parts.
struct PartStore {
    /// Whether the shell's folder of parts may have one.
    var mayHaveStored = false
    /// Bytes of all parts. A wrapping sum, because workers report some of the sizes.
    private(set) var bytes = 0
    /// Parts by flight.
    private(set) var kept: [Handle<Flight>: KeptPart] = [:]

    var isEmpty: Bool { kept.isEmpty }

    func hasPart(of flight: Handle<Flight>) -> Bool { kept[flight] != nil }

    /// Keeps a part for a flight without one.
    mutating func keep(_ part: KeptPart, for flight: Handle<Flight>) {
        precondition(kept[flight] == nil, "flight \(flight) has two parts")
        kept[flight] = part
        bytes &+= part.bytes
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
        if Set(kept.values.map(\.file)).count < kept.count { faults.append("12: two parts share a file") }
        return faults
    }
}
