import EarshotGateway
import Testing

/// Dates and times at which keys expire.
@Suite struct KeyExpiryTests {
    @Test(arguments: [
        ("1970-01-01", 0), ("1970-01-02T00:00:01Z", 86_401), ("2024-02-29", 1_709_164_800),
        ("2027-01-31", 1_801_353_600),
        ("2100-03-01T23:59:59Z", 4_107_628_799), ("9999-12-31", 253_402_214_400),
    ])
    func `a date is its start in UTC`(_ text: String, _ seconds: Int64) throws {
        let expiry = try #require(KeyExpiry(text))
        #expect(expiry.secondsSince1970 == seconds)
        #expect(expiry.description == text)
    }

    @Test(arguments: [
        "", "2027", "2027-1-1", "2027-00-01", "2027-13-01", "2027-02-29", "2100-02-29", "2027-04-31", "1969-12-31",
        "2027-01-01 00:00:00Z", "2027-01-01T24:00:00Z", "2027-01-01T00:60:00Z", "2027-01-01T00:00:60Z",
        "2027-01-01T00:00:00+", "2027-01-01T00:00:00", "-027-01-01", "2027-01-0a", "２027-01-01",
    ])
    func `other texts are refused`(_ text: String) { #expect(KeyExpiry(text) == nil) }
}
