/// Reference to a record, in four bytes: its place in the slab that owns it.
///
/// The type of the record is part of the handle's type, so the handle of a worker cannot be passed as a client's. Only
/// the types of this folder, and tests, make handles. The place of a removed record is reused. A reference that may
/// outlive its record is a ``GenerationalHandle``.
package struct Handle<Record>: Hashable, Comparable, Sendable, CustomStringConvertible {
    private let place: Int32

    init(place: Int32) { self.place = place }

    init(index: Int) { place = Int32(index) }

    /// Index in tables with an entry for each place of the slab.
    package var index: Int { Int(place) }

    /// Number of the record: in reports, and in keys for `NumberHash`.
    package var number: Int32 { place }

    /// Hashes as the place alone, which takes half as many instructions as the synthesized way through a `Hasher`.
    package func _rawHashValue(seed: Int) -> Int { place._rawHashValue(seed: seed) }

    package static func < (left: Handle, right: Handle) -> Bool { left.place < right.place }

    package var description: String { place.description }
}
