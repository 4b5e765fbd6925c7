/// Optional number of a record, in 4 bytes. `Int32?` takes 8 bytes in a record, and a queued request has several.
@propertyWrapper
struct OptionalNumber: Equatable {
    /// -1 for nil.
    private var number: Int32

    init(wrappedValue: Int32?) { number = wrappedValue ?? -1 }

    var wrappedValue: Int32? {
        get { number < 0 ? nil : number }
        set { number = newValue ?? -1 }
    }
}
