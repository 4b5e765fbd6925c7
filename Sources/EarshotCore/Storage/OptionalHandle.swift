/// Optional handle in 4 bytes. `Handle?` takes 8 bytes in a record, and a queued request has several.
@propertyWrapper
package struct OptionalHandle<Record>: Equatable {
    /// Negative for nil.
    private var place: Int32

    package init(wrappedValue: Handle<Record>?) { place = wrappedValue?.number ?? .min }

    package var wrappedValue: Handle<Record>? {
        get { place < 0 ? nil : Handle(place: place) }
        set { place = newValue?.number ?? .min }
    }
}
