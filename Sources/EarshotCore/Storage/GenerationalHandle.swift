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
        contains(reference.record) && self[reference.record].generation == reference.generation
            ? reference.record : nil
    }
}
