/// Hash table of record numbers. The records themselves hold the keys, so an entry costs 8 bytes and its share of empty
/// places.
///
/// Open addressing with linear probing. A removal shifts later entries back instead of leaving a tombstone, so lookups
/// stay fast.
struct NumberTable {
    private struct Place {
        /// nil if the place is empty.
        @OptionalNumber var number: Int32? = nil
        var hash: UInt32 = 0
    }

    private var places: [Place] = []
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }

    /// Returns the number with this hash that `isMatch` accepts.
    func find(_ hash: UInt32, _ isMatch: (Int32) -> Bool) -> Int32? {
        guard !places.isEmpty else { return nil }
        var index = home(of: hash)
        while let number = places[index].number {
            if places[index].hash == hash, isMatch(number) { return number }
            index = next(index)
        }
        return nil
    }

    /// Adds a number, which must not be in the table with this hash. O(1) amortised.
    mutating func insert(_ number: Int32, _ hash: UInt32) {
        if (count + 1) * 4 > places.count * 3 { grow() }
        place(Place(number: number, hash: hash))
        count += 1
    }

    /// Removes a number; no effect if it is absent.
    mutating func remove(_ number: Int32, _ hash: UInt32) {
        guard !places.isEmpty else { return }
        var gap = home(of: hash)
        while let other = places[gap].number, other != number { gap = next(gap) }
        guard places[gap].number != nil else { return }
        count -= 1
        var index = next(gap)
        while places[index].number != nil {
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
        while places[index].number != nil { index = next(index) }
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
        for entry in old where entry.number != nil { place(entry) }
    }
}
