import EarshotWire
import Testing

@testable import EarshotCore

/// The book of orphans in isolation: each event in each phase of an orphan, matches, and the limits.
struct AdoptionBookTests {
    /// Phase of the orphan before an event.
    enum Phase: CaseIterable {
        case absent, running, responded

        init(_ orphan: AdoptionBook.Orphan?) {
            self =
                switch orphan {
                case nil: .absent
                case .running: .running
                case .responded: .responded
                }
        }

        var orphan: AdoptionBook.Orphan? {
            switch self {
            case .absent: nil
            case .running: .running(worker: 1, AdoptionBookTests.attempt(1))
            case .responded: .responded(AdoptionBookTests.response())
            }
        }
    }

    enum Event: CaseIterable {
        case seek, takeResponse, giveUp, close
    }

    private static let identity = identity(1)

    private static func identity(_ number: UInt64) -> FlightIdentity { FlightIdentity(high: number, low: 9) }

    private static func attempt(_ flight: UInt64) -> AttemptID {
        AttemptID(broker: BrokerInstance(rawValue: 1), flight: flight, attempt: 1)
    }

    /// A response with its body in memory, or without one.
    private static func response(bytes: Int = 100, isInMemory: Bool = true) -> Outcome.Response {
        let now = Tick(nanoseconds: 1)
        return Outcome.Response(
            status: 200, url: "", length: bytes, body: isInMemory ? BodyID(rawValue: 1) : nil, fields: [],
            startedAt: now, endedAt: now)
    }

    private static func name(_ flight: Handle<Flight>) -> FlightName {
        FlightName(reference: GenerationalHandle(record: flight, generation: UInt64(flight.index) + 100))
    }

    /// An open book in which the orphan of flight 1 is in the given phase.
    private static func book(_ phase: Phase = .absent, seekers: Int = 10, bytes: Int = 1_000) -> AdoptionBook {
        var book = AdoptionBook(limits: AdoptionBook.Limits(seekers: seekers, bytes: bytes))
        book.open()
        guard phase != .absent else { return book }
        book.hold(attempt(1), at: 1, as: identity)
        if phase == .responded { _ = book.ended(identity, with: response()) }
        return book
    }

    /// Whether the event removes the orphan, and whether it returns it.
    private static func expected(_ event: Event, _ phase: Phase) -> (isRemoved: Bool, isReturned: Bool) {
        switch (event, phase) {
        case (_, .absent), (.takeResponse, .running), (.seek, .responded): (false, false)
        case (.seek, .running), (.takeResponse, .responded), (.giveUp, _), (.close, _): (true, true)
        }
    }

    @Test(arguments: Event.allCases, Phase.allCases)
    func `each event in each phase leads where the diagram says`(event: Event, phase: Phase) {
        var book = Self.book(phase)
        let isReturned =
            switch event {
            case .seek: book.seek(Self.identity, for: Self.name(5))?.attempt == Self.attempt(1)
            case .takeResponse: book.takeResponse(Self.identity)?.length == 100
            case .giveUp: Phase(book.giveUp(Self.identity)) == phase && phase != .absent
            case .close: book.close().map { Phase($0) } == [phase]
            }
        let expected = Self.expected(event, phase)
        #expect(isReturned == expected.isReturned)
        #expect(Phase(book.orphans[Self.identity]) == (expected.isRemoved ? .absent : phase))
        #expect(book.adopted == (event == .seek && phase == .running ? [5: Self.attempt(1)] : [:]))
        #expect(book.bytes == (phase == .responded && !expected.isRemoved ? 100 : 0))
        #expect(book.accepts(Self.identity) == (event != .close && book.orphans.isEmpty))
        #expect(book.checkInvariants() == [])
    }

    @Test(arguments: [true, false])
    func `an attempt that ends leaves its response, or nothing`(hasResponse: Bool) {
        var book = Self.book(.running)
        #expect(book.ended(Self.identity, with: hasResponse ? Self.response() : nil) == hasResponse)
        #expect(Phase(book.orphans[Self.identity]) == (hasResponse ? .responded : .absent))
        #expect(book.checkInvariants() == [])
    }

    @Test func `the diagram has these transitions and no others`() {
        let legal = Phase.allCases.map { from in
            Phase.allCases.filter { AdoptionBook.isLegal(from: from.orphan, to: $0.orphan) }
        }
        #expect(legal == [[.running], [.absent, .responded], [.absent]])
    }

    @Test func `a book accepts orphans while it is open, one for each identity`() {
        var book = AdoptionBook(limits: AdoptionBook.Limits(seekers: 1, bytes: 1))
        #expect(!book.accepts(Self.identity))
        book.open()
        #expect(book.accepts(Self.identity))
        book.hold(Self.attempt(1), at: 1, as: Self.identity)
        #expect(!book.accepts(Self.identity) && book.accepts(Self.identity(2)))
        #expect(book.orphans[Self.identity]?.isHeld(by: 1, as: Self.attempt(1)) == true)
        #expect(book.orphans[Self.identity]?.isHeld(by: 2, as: Self.attempt(1)) == false)
        #expect(book.orphans[Self.identity]?.isHeld(by: 1, as: Self.attempt(2)) == false)
    }

    @Test func `orphans end in the order of their identities`() {
        var book = Self.book()
        for number in [3, 1, 4, 2] as [UInt64] {
            book.hold(Self.attempt(number), at: 1, as: Self.identity(number))
        }
        let attempts = book.close().compactMap { if case .running(_, let attempt) = $0 { attempt.flight } else { nil } }
        #expect(attempts == [1, 2, 3, 4])
        #expect(book.isEmpty)
    }

    @Test(arguments: [(900, true, true), (901, true, false), (901, false, true), (.max, true, false)])
    func `responses in memory are bounded by their bytes`(bytes: Int, isInMemory: Bool, isKept: Bool) {
        var book = Self.book(.responded)
        let second = Self.identity(2)
        book.hold(Self.attempt(2), at: 1, as: second)
        #expect(book.ended(second, with: Self.response(bytes: bytes, isInMemory: isInMemory)) == isKept)
        #expect(book.bytes == (isKept && isInMemory ? 100 + bytes : 100))
        #expect(book.checkInvariants() == [])
        book.limits.bytes = 99
        #expect(book.checkInvariants().count == 1)
    }

    @Test func `beyond the limit a seeker is not remembered, and a later one of an identity replaces the earlier`() {
        var book = Self.book(seekers: 1)
        for (flight, identity) in [(1, 1), (2, 2), (3, 1)] as [(Handle<Flight>, UInt64)] {
            #expect(book.seek(Self.identity(identity), for: Self.name(flight)) == nil)
        }
        #expect(book.seeker(of: Self.identity(1)) == Self.name(3))
        #expect(book.seeker(of: Self.identity(2)) == nil)
        #expect(book.checkInvariants() == [])
        _ = book.close()
        #expect(book.seeker(of: Self.identity(1)) == nil)
        #expect(book.checkInvariants() == [])
    }

    @Test func `flights that find a response are matches until the book closes, the last one first`() {
        var book = Self.book(.responded)
        for flight in [5, 6, 7] as [Handle<Flight>] { _ = book.seek(Self.identity, for: Self.name(flight)) }
        _ = book.seek(Self.identity(2), for: Self.name(8))
        #expect(book.nextMatch() == Self.name(7))
        #expect(book.nextMatch() == Self.name(6))
        _ = book.close()
        #expect(book.nextMatch() == nil)
    }

    @Test func `a flight runs the attempt that it adopted until that ends`() {
        var book = Self.book(.running)
        #expect(book.seek(Self.identity, for: Self.name(5))?.worker == 1)
        #expect(book.attempt(of: 5) == Self.attempt(1) && book.attempt(of: 6) == nil)
        #expect(!book.isEmpty)
        book.attemptEnded(of: 6)
        #expect(book.attempt(of: 5) != nil)
        book.attemptEnded(of: 5)
        #expect(book.attempt(of: 5) == nil && book.isEmpty)
    }

    @Test func `the checks see an attempt that two identities name`() {
        var book = Self.book(.running)
        book.hold(Self.attempt(1), at: 2, as: Self.identity(2))
        #expect(book.checkInvariants() == ["3: an attempt was adopted twice"])
    }
}
