/// Hash table of handles. The records themselves hold the keys, so an entry costs 8 bytes and its share of empty
/// places.
///
/// Open addressing with linear probing. A removal shifts later entries back instead of leaving a tombstone, so lookups
/// stay fast.
struct HandleTable<Record> {
    private struct Place {
        /// nil if the place is empty.
        @OptionalHandle var record: Handle<Record>? = nil
        var hash: UInt32 = 0
    }

    private var places: [Place] = []
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }

    /// Returns the record with this hash that `isMatch` accepts.
    func find(_ hash: UInt32, _ isMatch: (Handle<Record>) -> Bool) -> Handle<Record>? {
        guard !places.isEmpty else { return nil }
        var index = home(of: hash)
        while let record = places[index].record {
            if places[index].hash == hash, isMatch(record) { return record }
            index = next(index)
        }
        return nil
    }

    /// Adds a record, which must not be in the table with this hash. O(1) amortised.
    mutating func insert(_ record: Handle<Record>, _ hash: UInt32) {
        if (count + 1) * 4 > places.count * 3 { grow() }
        place(Place(record: record, hash: hash))
        count += 1
    }

    /// Removes a record; no effect if it is absent.
    mutating func remove(_ record: Handle<Record>, _ hash: UInt32) {
        guard !places.isEmpty else { return }
        var gap = home(of: hash)
        while let other = places[gap].record, other != record { gap = next(gap) }
        guard places[gap].record != nil else { return }
        count -= 1
        var index = next(gap)
        while places[index].record != nil {
            // An entry may move into the gap unless its home lies after the gap.
            let distance = (index - home(of: places[index].hash)) & (places.count - 1)
            if distance >= (index - gap) & (places.count - 1) {
                places[gap] = places[index]
                gap = index
            }
            index = next(index)
        }
        places[gap] = Place()
    }

    private func home(of hash: UInt32) -> Int { Int(hash) & (places.count - 1) }

    private func next(_ index: Int) -> Int { (index + 1) & (places.count - 1) }

    private mutating func place(_ entry: Place) {
        var index = home(of: entry.hash)
        while places[index].record != nil { index = next(index) }
        places[index] = entry
    }

    /// Releases spare capacity beyond `least` places. At most half of the places are in use afterwards.
    mutating func releaseRoom(least: Int) {
        guard SpareRoom.isMuch(places.count, used: count, least: least) else { return }
        var capacity = 16
        while capacity < count * 2 { capacity *= 2 }
        resize(to: capacity)
    }

    private mutating func grow() { resize(to: max(16, places.count * 2)) }

    /// - Parameter capacity: a power of two, greater than four thirds of the count.
    private mutating func resize(to capacity: Int) {
        let old = places
        places = [Place](repeating: Place(), count: capacity)
        for entry in old where entry.record != nil { place(entry) }
    }
}
