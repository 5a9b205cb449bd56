"""What people and scripts can do with tasks: describe one (`build`), look before they leap (`preview`), create it
(`create`), and steer it (`steer`)."""
