/// Values for the records of a slab that another component owns: an array by place.
struct HandleArray<Record, Value> {
    private var values: [Value] = []

    /// Handles of all places with a value.
    var handles: some Collection<Handle<Record>> { values.indices.lazy.map { Handle(index: $0) } }

    func contains(_ record: Handle<Record>) -> Bool { record.index < values.count }

    /// Adds values up to the place of a record, if it has none.
    mutating func reserve(_ record: Handle<Record>, filler: @autoclosure () -> Value) {
        while values.count <= record.index { values.append(filler()) }
    }

    /// Value of a record, which must have one.
    subscript(record: Handle<Record>) -> Value {
        @inline(__always) _read { yield values[record.index] }
        @inline(__always) _modify { yield &values[record.index] }
    }

    /// Releases the values of records from `bound` on, which must not exist.
    mutating func releaseRoom(beyond bound: Int, least: Int) { values.releaseRoom(beyond: bound, least: least) }
}
