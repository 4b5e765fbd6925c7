/// Reference to a record, in four bytes: its place in the slab that owns it.
///
/// The type of the record is part of the handle's type, so the handle of a worker cannot be passed as a client's. Only
/// the types of this folder, and tests, make handles. The place of a removed record is reused. A reference that may
/// outlive its record is a ``GenerationalHandle``.
package struct Handle<Record>: Hashable, Comparable, Sendable, CustomStringConvertible {
    private let indexInSlab: Int32

    init(indexInSlab: Int32) { self.indexInSlab = indexInSlab }

    init(slabIndex: Int) { indexInSlab = Int32(slabIndex) }

    /// Index in tables with an entry for each place of the slab.
    package var slabIndex: Int { Int(indexInSlab) }

    /// Number of the record: in reports, and in keys for `NumberHash`.
    package var recordNumber: Int32 { indexInSlab }

    /// Hashes as the place alone, which takes half as many instructions as the synthesized way through a `Hasher`.
    package func _rawHashValue(seed: Int) -> Int { indexInSlab._rawHashValue(seed: seed) }

    package static func < (left: Handle, right: Handle) -> Bool { left.indexInSlab < right.indexInSlab }

    package var description: String { indexInSlab.description }
}

/// Optional handle in 4 bytes. `Handle?` takes 8 bytes in a record, and a queued request has several.
@propertyWrapper
package struct OptionalHandle<Record>: Equatable {
    /// Negative for nil.
    private var slabPlaceOrNegative: Int32

    package init(wrappedValue: Handle<Record>?) { slabPlaceOrNegative = wrappedValue?.recordNumber ?? .min }

    package var wrappedValue: Handle<Record>? {
        get { slabPlaceOrNegative < 0 ? nil : Handle(indexInSlab: slabPlaceOrNegative) }
        set { slabPlaceOrNegative = newValue?.recordNumber ?? .min }
    }
}

/// Reference that may outlive its record: a handle with the generation of the record, which no other record in the same
/// place has.
package struct GenerationalHandle<Record>: Hashable, Sendable {
    let record: Handle<Record>
    let generation: UInt64
}

/// Record to which references may outlive it.
protocol Generational {
    /// Distinguishes this record from earlier and later ones in the same place.
    var generation: UInt64 { get }
}

extension Slab where Element: Generational {
    /// Returns a reference to a record, which must exist.
    func reference(to record: Handle<Element>) -> GenerationalHandle<Element> {
        GenerationalHandle(record: record, generation: self[record].generation)
    }

    /// Returns the record of a reference; nil if it is gone.
    @inline(__always)
    func resolve(_ reference: GenerationalHandle<Element>) -> Handle<Element>? {
        let record = reference.record
        return contains(record) && self[record].generation == reference.generation ? record : nil
    }
}

/// Values for the records of a slab that another component owns: an array by place.
struct HandleArray<Record, Value> {
    private var valuesByPlace: [Value] = []

    /// Handles of all places with a value.
    var handles: some Collection<Handle<Record>> { valuesByPlace.indices.lazy.map { Handle(slabIndex: $0) } }

    func contains(_ record: Handle<Record>) -> Bool { record.slabIndex < valuesByPlace.count }

    /// Adds values up to the place of a record, if it has none.
    mutating func extendIfNeeded(to record: Handle<Record>, filler: @autoclosure () -> Value) {
        while valuesByPlace.count <= record.slabIndex { valuesByPlace.append(filler()) }
    }

    /// Value of a record, which must have one.
    subscript(record: Handle<Record>) -> Value {
        @inline(__always) _read { yield valuesByPlace[record.slabIndex] }
        @inline(__always) _modify { yield &valuesByPlace[record.slabIndex] }
    }

    /// Releases the values of records from `bound` on, which must not exist.
    mutating func releaseSpareCapacity(beyond bound: Int, retaining least: Int) {
        valuesByPlace.releaseSpareCapacity(beyond: bound, retaining: least)
    }
}
