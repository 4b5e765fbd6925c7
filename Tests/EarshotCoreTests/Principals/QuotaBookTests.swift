import Testing

@testable import EarshotCore

/// The book of quotas in isolation.
struct QuotaBookTests {
    private static let (a, b) = (1 as Handle<Principal>, 2 as Handle<Principal>)
    private static let limits = QuotaBook.Limits(requests: 2, transfers: 2, spoolBytes: 1_000, durableBytes: 500)

    @Test func `each quota admits as much as it says, of each principal`() {
        var book = QuotaBook(limits: Self.limits)
        for principal in [Self.a, Self.b] {
            book.requests(2, of: principal)
            #expect(book.admitsRequests(of: principal))
            book.requests(1, of: principal)
            #expect(!book.admitsRequests(of: principal))
            book.requests(-1, of: principal)
            #expect(book.admitsRequests(of: principal))

            book.transferStarted(by: principal)
            #expect(!book.isFull(principal))
            book.transferStarted(by: principal)
            #expect(book.isFull(principal))

            book.spoolBytes(600, of: principal)
            #expect(book.hasRoomInSpool(for: 400, of: principal) && !book.hasRoomInSpool(for: 401, of: principal))
            book.share(500, of: \.durableBytes, by: principal)
            #expect(book.hasRoomForDurable(0, of: principal, within: 9_000))
            #expect(!book.hasRoomForDurable(1, of: principal, within: 9_000))
        }
        let use = QuotaBook.Use(requests: 2, transfers: 2, spoolBytes: 600, durableBytes: 500)
        #expect(book.principals == [Self.a, Self.b])
        #expect(book.checkInvariants(expected: [Self.a: use, Self.b: use]) == [])
    }

    @Test func `only the end that leaves the quota is reported`() {
        var book = QuotaBook(limits: Self.limits)
        for _ in 1...4 { book.transferStarted(by: Self.a) }
        // Transfers above a lowered quota drain.
        #expect(book.snapshot?.isFull(Self.a) == true && book.snapshot?.isFull(Self.b) == false)
        #expect((1...4).map { _ in book.transferEnded(by: Self.a) } == [false, false, true, false])
        #expect(book.principals.isEmpty, "a principal without any use has no entry")
    }

    @Test func `the administrator is neither counted nor bounded`() {
        var book = QuotaBook(limits: Self.limits)
        let administrator = PrincipalTable.administrator
        book.requests(1_000, of: administrator)
        for _ in 1...10 { book.transferStarted(by: administrator) }
        book.spoolBytes(1 << 40, of: administrator)
        book.share(1 << 40, of: \.durableBytes, by: administrator)
        #expect(book.admitsRequests(of: administrator) && !book.isFull(administrator))
        #expect(book.hasRoomInSpool(for: 1 << 50, of: administrator))
        #expect(book.hasRoomForDurable(1 << 50, of: administrator, within: 1), "the store has the bound of all")
        let hasOpened = book.transferEnded(by: administrator)
        #expect(!hasOpened)
        #expect(book.uses.isEmpty)
    }

    @Test func `a quota of 0 does not bound, and a raised one opens`() {
        var book = QuotaBook(limits: QuotaBook.Limits())
        book.requests(1_000, of: Self.a)
        for _ in 1...3 { book.transferStarted(by: Self.a) }
        book.transferStarted(by: Self.b)
        book.spoolBytes(1 << 40, of: Self.a)
        #expect(book.admitsRequests(of: Self.a) && !book.isFull(Self.a))
        #expect(book.hasRoomInSpool(for: 1 << 50, of: Self.a))
        #expect(book.hasRoomForDurable(1 << 50, of: Self.a, within: 1) && book.admitsDurableRow(1 << 50, of: Self.a))
        #expect(book.setLimits(Self.limits) == [])
        #expect(book.isFull(Self.a) && !book.isFull(Self.b))
        #expect(book.setLimits(QuotaBook.Limits(transfers: 4)) == [Self.a])
        #expect(book.setLimits(QuotaBook.Limits(transfers: 3)) == [])
        #expect(book.setLimits(QuotaBook.Limits()) == [Self.a])
    }

    @Test func `a wrong count is an error of the checks`() {
        var book = QuotaBook(limits: Self.limits)
        book.requests(1, of: Self.a)
        #expect(book.checkInvariants(expected: [:]).count == 1)
        #expect(book.checkInvariants(expected: [Self.a: QuotaBook.Use(requests: 1)]) == [])
        #expect(
            book.checkInvariants(expected: [Self.a: QuotaBook.Use(requests: 1), Self.b: QuotaBook.Use(transfers: 1)])
                .count == 1)
    }

    @Test func `the administrator leaves the last quarter to others, and they take nothing from its own part`() {
        var book = QuotaBook(limits: QuotaBook.Limits())
        func admits(_ amount: Int, _ principal: Handle<Principal>) -> Bool {
            book.admits(amount, of: \.headBytes, for: principal, within: 1_000)
        }
        let own = PrincipalTable.administrator
        #expect(admits(1_000, own) && !admits(1_001, own), "there are no others")
        book.hasOthers = true
        #expect(admits(750, own) && !admits(751, own))
        #expect(admits(250, Self.a) && !admits(251, Self.a))
        for principal in [Self.a, Self.b] { book.share(250, of: \.headBytes, by: principal) }
        #expect(admits(500, own) && !admits(501, own), "the bound of all")
        book.share(500, of: \.headBytes, by: own)
        book.share(-250, of: \.headBytes, by: Self.b)
        #expect(admits(250, own) && admits(250, Self.b) && !admits(1, Self.a))
        let uses = [own: QuotaBook.Use(headBytes: 500), Self.a: QuotaBook.Use(headBytes: 250)]
        #expect(book.checkInvariants(expected: uses) == [])
    }

    @Test func `the administrator leaves the last quarter of the durable store to others`() {
        var book = QuotaBook(limits: Self.limits)
        book.hasOthers = true
        let own = PrincipalTable.administrator
        #expect(book.hasRoomForDurable(750, of: own, within: 1_000))
        #expect(!book.hasRoomForDurable(751, of: own, within: 1_000))
        book.share(700, of: \.durableBytes, by: own)
        book.share(250, of: \.durableBytes, by: Self.a)
        #expect(book.hasRoomForDurable(50, of: own, within: 1_000))
        #expect(!book.hasRoomForDurable(51, of: own, within: 1_000))
    }

    @Test func `a first durable row is loaded however long it is, and others within the quota`() {
        var book = QuotaBook(limits: Self.limits)
        #expect(book.admitsDurableRow(501, of: Self.a))
        book.share(100, of: \.durableBytes, by: Self.a)
        #expect(book.admitsDurableRow(400, of: Self.a) && !book.admitsDurableRow(401, of: Self.a))
        #expect(book.admitsDurableRow(1 << 50, of: PrincipalTable.administrator))
    }
}
