/// One place in the row of what is due to a client, in four bytes.
struct DueTerminal: Equatable {
    enum Place {
        /// In memory: the interest by number.
        case memory(Int32)
        /// In the shell's file: the record in `waitingTerminals` by number.
        case file(Int32)
        /// Nowhere: what stood here was withdrawn, and its number is kept.
        case hole
    }

    static let hole = DueTerminal(number: -1)

    /// An interest's, or -2 for the first of `waitingTerminals`, -3 for the second, …
    private let number: Int32

    init(interest: Int32) {
        number = interest
    }

    init(waiting: Int32) {
        number = -2 - waiting
    }

    private init(number: Int32) {
        self.number = number
    }

    var place: Place {
        if number >= 0 { return .memory(number) }
        return number == -1 ? .hole : .file(-2 - number)
    }
}
